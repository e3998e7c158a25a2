"""Rotary position embedding on one axis, two or three."""
from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ..attention.terms import Term
from ..functional.grids import Grid, GridLike, as_grid, key_grid
from ..functional.rotary import (
    NORMALIZATIONS,
    SCALINGS,
    TEMPERATURES,
    cell_coordinates,
    frame_coordinates,
    planes_that_turn,
    sharper,
    stretched,
    turn_planes,
)
from .base import RelativeEncoding
from .checks import check_choices, check_positive

_THETA = {'axial': 100.0, 'mixed': 10.0}
#: Of sequences and videos (RoFormer, V-JEPA 2).
_LONG_THETA = 10000.0


class RotaryEmbedding(RelativeEncoding):
    """Queries and keys turned by angles that grow with their position, so that their product
    depends only on the offset (RoFormer, Eq. 13-16; RoPE-ViT, ECCV 2024, Eq. 9-14; EVA-02, Sec.
    2.1; DINOv3, Sec. 3.2).

    Planes of two channels of a head are turned at column c and row r by

    - 'axial': ``c * f[i]`` in the first half of the planes, ``r * f[i]`` in the second, with
      ``f[i] = theta ** (-4 i / head_dims)``;
    - 'mixed': ``c * freqs[0, head, i] + r * freqs[1, head, i]``, learned, so that directions other
      than the two axes exist. They start as two perpendicular axes turned by a random angle a head.

    On one axis (RoFormer) all planes are turned by the place in the sequence, and on three (V-JEPA
    2, Assran et al. 2025, Sec. 2.1) a third each by frame, column and row; what is left of the
    planes then is not turned. There f is ``theta ** (-i / n)`` for n planes an axis, as above.

    RoPE-ViT's are the defaults; EVA-02's is ``theta=10000, axes='yx', reference_grid=(16, 16)``,
    DINOv3's ``axes='yx', planes='halves', normalize='separate', rescale=2.0``.

    Args:
        head_dims: channels of a head: a multiple of 4; with ``dims`` even, and at least 2 an axis.
        num_heads: attention heads.
        dims: axes: 1 is a sequence, (length,), 2 a map, 3 a video, (frames, H, W).
        mode: 'axial' or 'mixed'.
        theta: base of the frequencies; 100 for 'axial' and 10 for 'mixed' by default, 10,000 on one
            axis and three.
        num_prefix_tokens: tokens in front of the grid; they are not turned.
        axes: 'xy', columns first as above; 'yx', rows first. Frames come before both.
        planes: 'adjacent', channels (2i, 2i + 1); 'halves', (i, head_dims / 2 + i).
        reference_grid: (H, W) on which c and r are counted, whatever the size of the grid: its
            side is the reference's. None counts cells.
        first: c and r of the first cell; 1 in Perception Encoder, whose class token lies at 0. Only
            products of cells with tokens in front of them tell.
        normalize: c and r go from -1 to 1, along each side for 'separate', along the longer one for
            'max', the shorter one for 'min'; f is then 2 pi times as large.
        periods: (shortest, longest) instead of ``theta``: ``f[i]`` is 2 pi by periods that rise
            from one to the other by equal factors.
        round_periods: periods in bfloat16, as the files of DINOv3's release hold them (Hugging
            Face's and timm's models do not).
        shift, jitter, rescale: while training, c and r are shifted by up to ``shift`` (in their own
            unit), then scaled by up to ``jitter`` or 1 / ``jitter``, each by its own, then both by
            up to ``rescale`` (DINOv3). Drawn again in every call, as DINOv3's release does in every
            block; in a padded batch for every image.
        scaling: for grids longer than ``grid_shape``, each axis by its own: 'linear' divides all
            frequencies by the side over the trained one (position interpolation), 'ntk' the slower
            ones more than the faster, 'yarn' those that turn seldom on the trained side.
        turns: planes that turn less often on the trained side than the first number are divided
            with 'yarn', those that turn more often than the second stay; (1, 32) is the release's.
        temperature: logits for grids of other sizes than ``grid_shape``: 'yarn' times (0.1 log s +
            1)^2 for sides s >= 1 times as long, 'log' times log n / log m for n keys where m were
            trained, 'entropy' times its root.
        grid_shape: (H, W) trained on; read with ``scaling`` and ``temperature`` alone, which need
            it.

    Shapes: as :class:`RelativeEncoding`; only :meth:`rotate` does something.

    Raises:
        ValueError: for head_dims that do not divide, unknown names, numbers and options that do not
            fit together, or those of maps (mixed, normalize, reference_grid, shift, jitter,
            rescale) on other axes; in use for a grid of more axes.

    Differs from the releases: frequencies belong to the attention layer they are used in (in
    RoPE-ViT's one parameter holds those of all layers), heights and widths need not be equal, keys
    may lie on a coarser grid, and an image in a padded batch has the coordinates it has alone.
    """

    has_rotation = True

    def __init__(self, head_dims: int, num_heads: int, *, dims: int = 2, mode: str = 'axial',
                 theta: float | None = None, num_prefix_tokens: int = 0, axes: str = 'xy',
                 planes: str = 'adjacent', reference_grid: GridLike | None = None,
                 first: float = 0.0,
                 normalize: str | None = None, periods: tuple[float, float] | None = None,
                 round_periods: bool = False, shift: float | None = None,
                 jitter: float | None = None, rescale: float | None = None,
                 scaling: str | None = None, turns: tuple[float, float] = (1.0, 32.0),
                 temperature: str | None = None, grid_shape: GridLike | None = None) -> None:
        super().__init__()
        self._set_sizes(head_dims, num_heads, num_prefix_tokens)
        check_choices(mode=(mode, tuple(_THETA)), axes=(axes, ('xy', 'yx')),
                      planes=(planes, ('adjacent', 'halves')),
                      normalize=(normalize, (None, *NORMALIZATIONS)), dims=(dims, (1, 2, 3)),
                      scaling=(scaling, (None, *SCALINGS)),
                      temperature=(temperature, (None, *TEMPERATURES)))
        _check_dims(dims, head_dims, mode=None if mode == 'axial' else mode, shift=shift,
                    normalize=normalize, reference_grid=reference_grid, jitter=jitter,
                    rescale=rescale)
        _check_frequencies(theta, periods)
        _check_augmentation(shift, jitter, rescale)
        if first and (normalize is not None or dims != 2):
            raise ValueError(f'first={first} with normalize={normalize!r} and dims={dims}: only '
                             f'cells of a map are counted from it')
        if reference_grid is not None and normalize is not None:
            raise ValueError(f'reference_grid={reference_grid!r} and normalize={normalize!r}: '
                             f'coordinates are counted in one way; leave one of them out')
        self.dims, self.takes_frames = dims, dims == 3
        usual = _THETA[mode] if dims == 2 else _LONG_THETA
        self.mode, self.theta = mode, usual if theta is None else theta
        self.axes, self.planes, self.normalize = axes, planes, normalize
        self.reference_grid = (None if reference_grid is None
                               else as_grid(reference_grid, 'reference_grid').hw)
        self.periods, self.round_periods, self.first = periods, round_periods, first
        self.shift, self.jitter, self.rescale = shift, jitter, rescale
        self.cellwise = (normalize, reference_grid, scaling, temperature) == (None,) * 4
        self.scaling, self.temperature, self.turns = scaling, temperature, turns
        if scaling is not None or temperature is not None:
            self.grid_shape = self._trained_on(grid_shape)
        if mode == 'mixed':
            self.freqs = nn.Parameter(torch.empty(2, num_heads, head_dims // 2))
            self.reset_parameters()

    def reset_parameters(self) -> None:
        """Mixed frequencies: two perpendicular axes, turned by a random angle for each head."""
        if self.mode == 'axial':
            return
        turn = torch.rand(self.num_heads, 1) * (2 * math.pi)
        angle = torch.cat((turn.expand(-1, self.head_dims // 4),
                           turn.expand(-1, self.head_dims // 4) + math.pi / 2), dim=1)
        magnitude = self._axis_freqs(turn).repeat(2)
        with torch.no_grad():
            self.freqs.copy_(torch.stack((magnitude * angle.cos(), magnitude * angle.sin())))

    def _trained_on(self, grid_shape: GridLike | None) -> tuple[int, int]:
        """The trained grid, after a check of what needs it."""
        if grid_shape is None or self.dims == 3:
            raise ValueError(f'grid_shape={grid_shape!r} and dims={self.dims}: '
                             f'scaling={self.scaling!r} and temperature={self.temperature!r} need '
                             f'the grid trained on, and know no frames')
        given = [name for name in ('normalize', 'reference_grid', 'periods')
                 if getattr(self, name) is not None] + ['mode'] * (self.mode == 'mixed')
        if self.scaling is not None and given:
            raise ValueError(f'scaling={self.scaling!r} and {given[0]}='
                             f'{getattr(self, given[0])!r}: it scales axial frequencies of theta, '
                             f'and cells')
        if not 0 < self.turns[0] < self.turns[1]:
            raise ValueError(f'turns={self.turns!r} must be (less, more), both > 0')
        if self.scaling is not None and self.theta <= 1:
            raise ValueError(f'theta={self.theta} must be > 1 with scaling={self.scaling!r}')
        return as_grid(grid_shape, 'grid_shape', any_axes=True).hw

    def _axis_freqs(self, like: Tensor, side: tuple[int, int] = (1, 1)) -> Tensor:
        """f (planes of an axis,), on an axis of so many cells where so many were trained."""
        planes = self.head_dims // (2 * self.dims)
        numbers = torch.arange(planes, device=like.device, dtype=torch.float64)
        if self.periods is None:
            periods = self.theta ** (numbers / planes)
        else:
            least, most = self.periods
            share = numbers / max(planes - 1, 1)
            periods = least * (most / least) ** share
        if self.round_periods:
            periods = periods.bfloat16().double()
        turn = 1.0 if self.periods is None and self.normalize is None else 2 * math.pi
        freqs = (turn / periods).to(like.dtype)
        if self.scaling is None:
            return freqs
        # A tensor, for sides that are symbols.
        scale = (like.new_ones(()) * side[0] / side[1]).clamp_min(1)
        ramp = (planes_that_turn(planes, self.theta, side[1], self.turns)
                if self.scaling == 'yarn' else (0.0, 0.0))
        return stretched(freqs, self.scaling, scale, ramp)

    def terms(self, q_grid: Grid, k_grid: Grid) -> list[Term]:
        """None: the encoding lies in the turned queries and keys."""
        return []

    def rotate(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
               ) -> tuple[Tensor, Tensor]:
        """Turn queries (B, heads, Lq, head_dims) and keys (B, heads, Lk, head_dims); scaling a
        query before or after makes no difference."""
        query, key = as_grid(q_grid, 'q_grid', any_axes=True), key_grid(q_grid, k_grid)
        for name, grid in (('q_grid', query), ('k_grid', key)):
            if grid.frames > 1 and self.dims < 3 or grid.height > 1 and self.dims < 2:
                raise ValueError(f'{name}={grid.shape} has more axes than dims={self.dims} of '
                                 f'{type(self).__name__}')
        like = _precise(q)
        change = self._augmentation(like)
        turn = self._turn(query, query, change, like)
        other = turn if key == query else self._turn(key, query, change, like)
        halves = self.planes == 'halves'
        if self.temperature is not None:
            height, width = self.grid_shape
            cells = like.new_ones(()) * key.num_cells
            trained = like.new_ones(()) * height * width / (key.stride_h * key.stride_w)
            q = (q * sharper(self.temperature, cells, trained, self.dims)).to(q.dtype)
        return turn_planes(q, *turn, halves=halves), turn_planes(k, *other, halves=halves)

    def _augmentation(self, like: Tensor) -> tuple[Tensor, Tensor] | None:
        """What rows and columns are shifted and then scaled by, (2,) each; None for nothing."""
        if not self.training or (self.shift, self.jitter, self.rescale) == (None, None, None):
            return None
        shift, log_scale = like.new_zeros(2), like.new_zeros(2)
        if self.shift is not None:
            shift = like.new_empty(2).uniform_(-self.shift, self.shift)
        for factor, count in ((self.jitter, 2), (self.rescale, 1)):
            if factor is not None:
                most = math.log(factor)
                log_scale = log_scale + like.new_empty(count).uniform_(-most, most)
        return shift, log_scale.exp()

    def _turn(self, grid: Grid, query: Grid, change: tuple[Tensor, Tensor] | None, like: Tensor
              ) -> tuple[Tensor, Tensor]:
        """Cosine and sine (1 or heads, L, head_dims / 2) of every token's angles, computed only
        along each axis: the rest are copies or products."""
        rows, cols = cell_coordinates(grid, query, normalize=self.normalize,
                                      reference=self.reference_grid, first=self.first, like=like)
        if change is not None:
            shift, scale = change
            rows, cols = (rows + shift[0]) * scale[0], (cols + shift[1]) * scale[1]
        rows_first = self.axes == 'yx'
        if self.mode == 'axial':
            along = {'t': frame_coordinates(grid, like)[:, None, None, None],
                     'y': rows[:, None, None], 'x': cols[:, None]}
            order = ('x', self.axes, f't{self.axes}')[self.dims - 1]
            sides = (dict.fromkeys(order, (1, 1)) if self.scaling is None else
                     dict(zip('yx', zip(query.hw, self.grid_shape, strict=True), strict=True)))
            angles = [along[axis] * self._axis_freqs(like, sides[axis]) for axis in order]
            left = self.head_dims // 2 - sum(angle.shape[-1] for angle in angles)
            angles += [like.new_zeros(left)] if left else []
            size = (grid.frames, grid.height, grid.width, -1)
            cos, sin = (torch.cat([part.expand(size) for part in parts], -1)[None].flatten(1, 2)
                        for parts in zip(*((a.cos(), a.sin()) for a in angles), strict=True))
        else:
            freqs = self.freqs.to(like.dtype)
            of_row, of_col = freqs if rows_first else freqs.flip(0)
            by_col = (cols[:, None] * of_col[:, None])[:, None]  # heads, 1, W, planes
            by_row = (rows[:, None] * of_row[:, None])[:, :, None]  # heads, H, 1, planes
            cos = by_col.cos() * by_row.cos() - by_col.sin() * by_row.sin()
            sin = by_col.sin() * by_row.cos() + by_col.cos() * by_row.sin()
        cos, sin = cos.flatten(1, 2), sin.flatten(1, 2)
        if self.num_prefix_tokens:
            shape = (cos.shape[0], self.num_prefix_tokens, cos.shape[2])
            cos = torch.cat((cos.new_ones(shape), cos), 1)
            sin = torch.cat((sin.new_zeros(shape), sin), 1)
        return cos, sin


class GTA(RotaryEmbedding):
    """Queries, keys and values turned by angles that grow with their position, and each output back
    by its query's: out_i = R_i^-1 sum_j a_ij R_j v_j (geometric transform attention, Miyato et al.,
    ICLR 2024, Eq. 6, for the rotations SO(2) of rows and columns of an image).

    Places are shares of the sides; the planes of an axis turn once along a side, half as often, and
    so on, as the release.

    Args:
        head_dims: channels of a head: a multiple of 4, the first half for rows.
        num_heads: attention heads.
        max_freq: turns along a side of the fastest planes.
        num_prefix_tokens: tokens in front of the grid; they are not turned.

    Raises:
        ValueError: for head_dims that do not divide, or max_freq not above 0.

    Differs from the release: its planes of rows and columns take turns, from the slowest on;
    cameras (SE(3)) are left out.
    """

    def __init__(self, head_dims: int, num_heads: int, *, max_freq: float = 1.0,
                 num_prefix_tokens: int = 0) -> None:
        check_positive(max_freq=max_freq)
        slowest = 2.0 ** max(head_dims // 4 - 1, 0)
        super().__init__(head_dims, num_heads, num_prefix_tokens=num_prefix_tokens, axes='yx',
                         reference_grid=(1, 1), periods=(1 / max_freq, slowest / max_freq))

    def turn_values(self, v: Tensor, q_grid: GridLike, k_grid: GridLike | None = None) -> Tensor:
        """Values turned as keys."""
        query, like = as_grid(q_grid, 'q_grid'), _precise(v)
        return turn_planes(v, *self._turn(key_grid(q_grid, k_grid), query, None, like))

    def turn_back(self, out: Tensor, q_grid: GridLike, k_grid: GridLike | None = None) -> Tensor:
        """Turned back as queries were turned."""
        query = as_grid(q_grid, 'q_grid')
        cos, sin = self._turn(query, query, None, _precise(out))
        return turn_planes(out, cos, -sin)


#: The name from before there were other axes than a map's.
RotaryEmbedding2D = RotaryEmbedding


def _precise(x: Tensor) -> Tensor:
    """A tensor of at least float32: a half-precision 200 * f is off by 0.1 rad."""
    return torch.empty(0, device=x.device, dtype=torch.promote_types(x.dtype, torch.float32))


def _check_dims(dims: int, head_dims: int, **of_maps: Any) -> None:
    if dims == 2 and (head_dims < 4 or head_dims % 4):
        raise ValueError(f'head_dims={head_dims} must be a positive multiple of 4: two axes of '
                         f'planes of two channels')
    if head_dims < 2 * dims or head_dims % 2:
        raise ValueError(f'head_dims={head_dims} must be even and at least 2 * dims = {2 * dims}')
    for name, value in of_maps.items():
        if dims != 2 and value is not None:
            raise ValueError(f'{name}={value!r} with dims={dims}: it is an option of maps, dims=2')


def _check_frequencies(theta: float | None, periods: tuple[float, float] | None) -> None:
    check_positive(theta=theta)
    if periods is None:
        return
    if theta is not None:
        raise ValueError(f'theta={theta} and periods={periods!r} both say what the frequencies '
                         f'are; leave one of them out')
    if len(periods) != 2 or not 0 < periods[0] <= periods[1]:
        raise ValueError(f'periods={periods!r} must be (shortest, longest), both > 0')


def _check_augmentation(shift: float | None, jitter: float | None, rescale: float | None) -> None:
    for name, value, least in (('shift', shift, 0), ('jitter', jitter, 1), ('rescale', rescale, 1)):
        if value is not None and not least <= value < math.inf:
            raise ValueError(f'{name}={value} must be at least {least}')
