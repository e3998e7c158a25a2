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
from .base import RelativeEncoding, refuse_zeros
from .checks import check_choices, check_positive

_THETA = {'axial': 100.0, 'mixed': 10.0}
#: For sequences and videos (RoFormer, V-JEPA 2).
_LONG_THETA = 10000.0


class RotaryEmbedding(RelativeEncoding):
    """Rotate queries and keys by angles proportional to their position, so that their product
    depends only on the offset (RoFormer, Eq. 13-16; RoPE-ViT, ECCV 2024, Eq. 9-14; EVA-02, Sec.
    2.1; DINOv3, Sec. 3.2).

    Pairs of channels ("planes") of a head at column c and row r are rotated by

    - 'axial': ``c * f[i]`` in the first half of the planes, ``r * f[i]`` in the second, with
      ``f[i] = theta ** (-4 i / head_dims)``;
    - 'mixed': ``c * freqs[0, head, i] + r * freqs[1, head, i]`` with learned frequencies, so that
      any direction is possible. They start as two perpendicular axes with a random angle per head.

    With one axis (RoFormer) all planes are rotated by the position in the sequence. With three
    (V-JEPA 2, Assran et al. 2025, Sec. 2.1) a third each is rotated by frame, column and row, and
    remaining planes are not rotated. There f is ``theta ** (-i / n)`` with n planes for each axis.

    The defaults are those of RoPE-ViT. EVA-02 has ``theta=10000, axes='yx', reference_grid=(16,
    16)``; DINOv3 has ``axes='yx', planes='halves', normalize='separate', rescale=2.0``.

    Args:
        head_dims: channels of a head; a multiple of 4 on maps, else even and at least 2 * dims.
        num_heads: attention heads.
        dims: axes: 1 for a sequence, (length,), 2 for a map, 3 for a video, (frames, H, W).
        mode: 'axial' or 'mixed'.
        theta: base of the frequencies; by default 100 for 'axial', 10 for 'mixed', and 10,000 with
            one or three axes.
        num_prefix_tokens: tokens in front of the grid; they are not rotated.
        axes: 'xy', columns first as above; 'yx', rows first. Frames come before both.
        planes: 'adjacent', channels (2i, 2i + 1); 'halves', (i, head_dims / 2 + i).
        reference_grid: (H, W); positions on grids of any size are scaled to this one. None counts
            cells.
        first: c and r of the first cell; 1 in Perception Encoder, whose class token is at 0. It
            affects only products of cells with prefix tokens.
        normalize: c and r go from -1 to 1, along each side for 'separate', along the longer one for
            'max', the shorter one for 'min'; f is then 2 pi times as large.
        periods: (shortest, longest) instead of ``theta``; ``f[i]`` is 2 pi over periods in a
            geometric series between the two.
        round_periods: round periods to bfloat16, as in the files of DINOv3's release (but not in
            the models of Hugging Face and timm).
        shift, jitter, rescale: augmentation in training (DINOv3). c and r are shifted by up to
            ``shift``, in their unit, then multiplied by a factor each from 1 / ``jitter`` to
            ``jitter``, then by one for both from 1 / ``rescale`` to ``rescale``. They are drawn in
            each call, as in the release, and for each image of a padded batch.
        scaling: for each side longer than that of ``grid_shape``, 'linear' divides all frequencies
            by the ratio of the sides (position interpolation), 'ntk' divides low frequencies more
            than high ones, 'yarn' only those with few rotations on the trained side.
        turns: (less, more) for 'yarn': frequencies with fewer rotations on the trained side than
            the first are divided, those with more than the second are not; (1, 32) in the release.
        temperature: factor of the logits on grids of other sizes than ``grid_shape``: 'yarn' is
            (0.1 log s + 1)^2 for sides s >= 1 times as long, 'log' is log n / log m for n keys
            instead of m in training, 'entropy' is the square root of 'log'.
        grid_shape: (H, W) of training; required by ``scaling`` and ``temperature``, else ignored.

    Raises:
        ValueError: for head_dims that do not divide, unknown options, options that do not fit
            together, options of maps (mixed, normalize, reference_grid, shift, jitter, rescale)
            with other ``dims``, or a grid with more axes than ``dims``.

    Differs from the releases: frequencies belong to their attention layer (RoPE-ViT has one
    parameter for all layers), height and width may differ, keys may lie on a coarser grid, and an
    image in a padded batch has the same coordinates as without padding.
    """

    variants = {'rotary': ('RoPE, axial', {}),
                'rotary-mixed': ('RoPE, mixed', dict(mode='mixed')),
                'rotary-ntk': ('RoPE, NTK scaling', dict(scaling='ntk')),
                'rotary-yarn': ('RoPE, YaRN', dict(scaling='yarn', temperature='yarn')),
                'rotary-entropy': ('RoPE, temperature by size', dict(temperature='entropy'))}
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
            RotaryEmbedding.reset_parameters(self)  # a subclass has not made its own yet

    def reset_parameters(self) -> None:
        """Set mixed frequencies to two perpendicular axes with a random angle for each head."""
        if self.mode == 'axial':
            return
        turn = torch.rand(self.num_heads, 1) * (2 * math.pi)
        angle = torch.cat((turn.expand(-1, self.head_dims // 4),
                           turn.expand(-1, self.head_dims // 4) + math.pi / 2), dim=1)
        magnitude = self._axis_freqs(turn).repeat(2)
        with torch.no_grad():
            self.freqs.copy_(torch.stack((magnitude * angle.cos(), magnitude * angle.sin())))

    def start_at_zero(self) -> None:
        """Set mixed frequencies to zero, which gives no rotation.

        Raises:
            ValueError: in mode 'axial', whose frequencies are fixed.
        """
        if self.mode == 'axial':
            refuse_zeros(self)
        super().start_at_zero()

    def _trained_on(self, grid_shape: GridLike | None) -> tuple[int, int]:
        """Check the options that need the grid of training, and return it."""
        if grid_shape is None or self.dims == 3:
            raise ValueError(f'grid_shape={grid_shape!r} and dims={self.dims}: '
                             f'scaling={self.scaling!r} and temperature={self.temperature!r} need '
                             f'the grid trained on, and dims=1 or dims=2')
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

    def axis_periods(self, device: torch.device | None = None) -> Tensor:
        """Periods (planes of an axis,) of mode 'axial', float64; frequencies are 1, or 2 pi, over
        them."""
        planes = self.head_dims // (2 * self.dims)
        numbers = torch.arange(planes, device=device, dtype=torch.float64)
        if self.periods is None:
            periods = self.theta ** (numbers / planes)
        else:
            least, most = self.periods
            periods = least * (most / least) ** (numbers / max(planes - 1, 1))
        return periods.bfloat16().double() if self.round_periods else periods

    def _axis_freqs(self, like: Tensor, side: tuple[int, int] = (1, 1)) -> Tensor:
        """Frequencies (planes of an axis,); ``side`` has the cells of the axis and those of it in
        training."""
        periods = self.axis_periods(like.device)
        planes = len(periods)
        turn = 1.0 if self.periods is None and self.normalize is None else 2 * math.pi
        freqs = (turn / periods).to(like.dtype)
        if self.scaling is None:
            return freqs
        # A tensor, because sides may be symbolic.
        scale = (like.new_ones(()) * side[0] / side[1]).clamp_min(1)
        ramp = (planes_that_turn(planes, self.theta, side[1], self.turns)
                if self.scaling == 'yarn' else (0.0, 0.0))
        return stretched(freqs, self.scaling, scale, ramp)

    def terms(self, q_grid: Grid, k_grid: Grid) -> list[Term]:
        """No terms: the encoding only rotates queries and keys."""
        return []

    def rotate(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
               ) -> tuple[Tensor, Tensor]:
        """Rotate queries (B, heads, Lq, head_dims) and keys (B, heads, Lk, head_dims). Queries may
        be scaled before or after."""
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
        """Random shift and scale of rows and columns, (2,) each; None for no augmentation."""
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
        """Cosine and sine (1 or heads, L, head_dims / 2) of the angles of all tokens. They are
        computed along each axis, then copied or multiplied."""
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
    """out_i = R_i^-1 sum_j a_ij R_j v_j: queries, keys and values are rotated by R at their
    position, and each output back by that of its query (geometric transform attention, Miyato et
    al., ICLR 2024, Eq. 6, with the rotations SO(2) of rows and columns of an image).

    Positions go from 0 to 1 along each side. The first plane of an axis has one rotation along a
    side, the next half a rotation, and so on, as in the release.

    Args:
        head_dims: channels of a head; a multiple of 4, the first half for rows.
        num_heads: attention heads.
        max_freq: rotations of the first plane along a side.
        num_prefix_tokens: tokens in front of the grid; they are not rotated.

    Raises:
        ValueError: for head_dims that do not divide, or max_freq not above 0.

    Differs from the release in the order of planes (there rows and columns alternate, from the
    lowest frequency); it has no cameras (SE(3)).
    """

    variants = {'gta': ('GTA, rotations', {})}

    def __init__(self, head_dims: int, num_heads: int, *, max_freq: float = 1.0,
                 num_prefix_tokens: int = 0) -> None:
        check_positive(max_freq=max_freq)
        slowest = 2.0 ** max(head_dims // 4 - 1, 0)
        super().__init__(head_dims, num_heads, num_prefix_tokens=num_prefix_tokens, axes='yx',
                         reference_grid=(1, 1), periods=(1 / max_freq, slowest / max_freq))

    def turn_values(self, v: Tensor, q_grid: GridLike, k_grid: GridLike | None = None) -> Tensor:
        """Rotate values as keys are rotated."""
        query, like = as_grid(q_grid, 'q_grid'), _precise(v)
        return turn_planes(v, *self._turn(key_grid(q_grid, k_grid), query, None, like))

    def turn_back(self, out: Tensor, q_grid: GridLike, k_grid: GridLike | None = None) -> Tensor:
        """Apply the inverse of the rotation of the queries to the output."""
        query = as_grid(q_grid, 'q_grid')
        cos, sin = self._turn(query, query, None, _precise(out))
        return turn_planes(out, cos, -sin)


#: Kept for configs that use this name.
RotaryEmbedding2D = RotaryEmbedding


def _precise(x: Tensor) -> Tensor:
    """A tensor of at least float32, because in half precision 200 * f has an error of 0.1 rad."""
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
