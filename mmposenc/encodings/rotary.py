"""Rotary position embedding on one axis, two or three."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..functional.constants import Constants
from ..functional.grids import Grid, GridLike, as_grid, key_grid, stored
from ..functional.rotary import (
    Change,
    Frequencies,
    Positions,
    Turn,
    frame_coordinates,
    like_at_least_float32,
    planes_in_directions,
    sharpening_factor,
    turn_of,
    turn_planes,
)
from .base import Rotation, refuse_zeros
from .rotary_options import check_frequencies, check_planes, check_positions, check_registers

_T = TypeVar('_T')


class RotaryEmbedding(Constants, Rotation):
    """Rotate queries and keys by angles proportional to their position, so that their product
    depends only on the offset (RoFormer, Eq. 13-16; RoPE-ViT, ECCV 2024, Eq. 9-14; EVA-02, Sec.
    2.1; DINOv3, Sec. 3.2; Spiral RoPE, Liu et al. 2026).

    Pairs of channels ("planes") of a head at column c and row r are rotated by

    - 'axes': ``c * f[i]`` in the first half of the planes, ``r * f[i]`` in the second, with
      ``f[i] = theta ** (-4 i / head_dims)``;
    - other directions: ``c * freqs[0, head, i] + r * freqs[1, head, i]``. 'learned' frequencies
      ("RoPE-Mixed") start as two perpendicular axes with a random angle per head. An even number K
      (Spiral RoPE) is that of fixed directions at 180 / K degrees from each other. 'hexagonal' has
      three, as grid cells (GridPE, Li et al. 2024). 'golden' gives each plane of each head its
      own, spread evenly (vit-pytorch), and a frequency, from the slowest to the fastest.

    With one axis (RoFormer) all planes are rotated by the position in the sequence. With three
    (V-JEPA 2, Assran et al. 2025, Sec. 2.1) a third each is rotated by frame, column and row, and
    remaining planes are not rotated. There f is ``theta ** (-i / n)`` with n planes for each axis.

    The defaults are those of RoPE-ViT. EVA-02 has ``theta=10000, axes='yx', reference_grid=(16,
    16)``; DINOv3 has ``axes='yx', planes='halves', normalize='separate', rescale=2.0``; MoonViT
    ``theta=10000, axes='alternate'``; interleaved MRoPE ``dims=3, axes='alternate',
    planes='halves', shared_freqs=False``; Spiral RoPE ``directions=4, theta=10000, axes='yx',
    reference_grid=(14, 14), shared_freqs=False``; ViT-5 ``theta=10000, axes='yx',
    register_grid=(2, 2)``.

    Args:
        head_dims: channels of a head; a multiple of 4 on maps, else even and at least 2 * dims.
        num_heads: attention heads.
        dims: axes: 1 for a sequence, (length,), 2 for a map, 3 for a video, (frames, H, W).
        directions: 'axes', 'learned', 'golden', 'hexagonal', or an even number.
        theta: base of the frequencies; by default 100, 10 for 'learned', and 10,000 with one or
            three axes.
        num_prefix_tokens: tokens in front of the grid; they are not rotated, but for registers.
        register_grid: (rows, columns) of a second grid, by which the last of these tokens, the
            registers, are rotated (ViT-5, arXiv 2602.08071). None: they are not.
        register_theta: base of their frequencies.
        axes: 'xy', columns first as above; 'yx', rows first. Frames come before both. 'alternate':
            a plane of each axis in turn, columns first on maps, in videos frames, rows, columns.
        shared_freqs: False: directions, or axes that alternate, have no frequencies in common but
            those of perpendicular directions; they go on from plane to plane.
        clamp: positions along oblique directions end at the sides of a square grid, as in Spiral
            RoPE's release, where the corners of 14 x 14 cells (20 of 196 at 45 degrees) have the
            positions of others. False: they go on, and results are the release's elsewhere.
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
            together, options of maps (directions, normalize, reference_grid, shift, jitter,
            rescale) with other ``dims``, or a grid with more axes than ``dims``.

    Differs from the releases: frequencies belong to their attention layer (RoPE-ViT has one
    parameter for all layers), height and width may differ, keys may lie on a coarser grid, and an
    image in a padded batch has the same coordinates as without padding. GridPE's code multiplies
    by sums of three waves with angles that are drawn anew for queries and keys in each call; here
    each wave has a plane and rotates it.
    """

    variants = {'rotary': ('RoPE, axial', {}),
                'rotary-shares': ('RoPE, shares of a side', dict(normalize='separate')),
                'rotary-mixed': ('RoPE, mixed', dict(directions='learned')),
                'rotary-spiral': ('RoPE, spiral', dict(directions=4, shared_freqs=False)),
                'rotary-golden': ('RoPE, golden', dict(directions='golden')),
                'rotary-ntk': ('RoPE, NTK scaling', dict(scaling='ntk')),
                'rotary-yarn': ('RoPE, YaRN', dict(scaling='yarn', temperature='yarn')),
                'rotary-entropy': ('RoPE, temperature by size', dict(temperature='entropy'))}
    freqs: Tensor
    #: Whether turns depend on nothing but the options that this class has, so that they are stored
    #: between calls. Subclasses do not inherit it.
    stores_turns = True
    #: The grid of training, where frequencies or logits depend on it.
    grid_shape: tuple[int, int] = (1, 1)

    def __init__(self, head_dims: int, num_heads: int, *, dims: int = 2,
                 directions: str | int = 'axes', theta: float | None = None,
                 num_prefix_tokens: int = 0, register_grid: GridLike | None = None,
                 register_theta: float = 100.0, axes: str = 'xy', planes: str = 'adjacent',
                 shared_freqs: bool = True, clamp: bool = False,
                 reference_grid: GridLike | None = None, first: float = 0.0,
                 normalize: str | None = None, periods: tuple[float, float] | None = None,
                 round_periods: bool = False, shift: float | None = None,
                 jitter: float | None = None, rescale: float | None = None,
                 scaling: str | None = None, turns: tuple[float, float] = (1.0, 32.0),
                 temperature: str | None = None, grid_shape: GridLike | None = None) -> None:
        super().__init__()
        self._set_sizes(head_dims, num_heads, num_prefix_tokens)
        self.dims, self.takes_frames = dims, dims == 3
        self.directions, self.axes, self.planes = directions, axes, planes
        self.shared_freqs, self.clamp, self.temperature = shared_freqs, clamp, temperature
        reference = None if reference_grid is None else as_grid(reference_grid, 'reference_grid').hw
        self.register_grid = (None if register_grid is None
                              else as_grid(register_grid, 'register_grid'))
        self.register_frequencies = Frequencies(register_theta)
        self.positions = Positions(normalize, reference, first, shift, jitter, rescale)
        usual = 10000.0 if dims != 2 else 10.0 if directions == 'learned' else 100.0
        self.frequencies = Frequencies(
            usual if theta is None else theta, periods, round_periods,
            1.0 if periods is None and normalize is None else 2 * math.pi, scaling, turns)
        check_planes(self)
        check_positions(self)
        check_registers(self)
        check_frequencies(self, theta, grid_shape)
        # Tuples, where a config has lists: they belong to the key of what is stored.
        self.frequencies = self.frequencies._replace(
            periods=periods and (periods[0], periods[1]), turns=(turns[0], turns[1]))
        stretches = scaling is not None or temperature is not None
        if stretches and grid_shape is not None:
            self.grid_shape = as_grid(grid_shape, 'grid_shape', any_axes=True).hw
        self.cellwise = not (stretches or clamp or normalize is not None or reference is not None)
        if directions == 'learned':
            self.freqs = nn.Parameter(torch.empty(2, num_heads, head_dims // 2))
            # Called by its full name, because a subclass has not created its own parameters yet.
            RotaryEmbedding.reset_parameters(self)
        self.register_constants()

    def constants(self) -> dict[str, object]:
        """The frequencies ``freqs`` (2, heads or 1, planes) of fixed directions, those of the first
        axis first."""
        if self.directions in ('axes', 'learned'):
            return {}
        planes, cpu = self.head_dims // 2, torch.empty(0, dtype=torch.float64, device='cpu')
        angles, numbers = zip(*planes_in_directions(
            self.directions, planes, self.num_heads, self.shared_freqs, self.axes == 'alternate'),
            strict=True)
        freqs = self.frequencies.series(1 + max(numbers), cpu)[list(numbers)]
        angle = cpu.new_tensor(angles)
        both = torch.stack((angle.cos() * freqs, angle.sin() * freqs))
        both = both.view(2, -1, min(planes, len(numbers)))
        return dict(freqs=F.pad(both, (0, planes - both.shape[2])).tolist())

    def reset_parameters(self) -> None:
        """Set learned frequencies to two perpendicular axes with a random angle for each head."""
        if self.directions != 'learned':
            return
        turn = torch.rand(self.num_heads, 1) * (2 * math.pi)
        angle = torch.cat((turn.expand(-1, self.head_dims // 4),
                           turn.expand(-1, self.head_dims // 4) + math.pi / 2), dim=1)
        magnitude = self.frequencies.series(self.head_dims // 4, turn).repeat(2)
        with torch.no_grad():
            self.freqs.copy_(torch.stack((magnitude * angle.cos(), magnitude * angle.sin())))

    def start_at_zero(self) -> None:
        """Set learned frequencies to zero, which gives no rotation.

        Raises:
            ValueError: for other directions, whose frequencies are fixed.
        """
        if self.directions != 'learned':
            refuse_zeros(self)
        super().start_at_zero()

    def axis_periods(self) -> Tensor:
        """The periods of the planes of an axis, in float64."""
        return self.frequencies.series_of_periods(self.head_dims // (2 * self.dims))

    def rotate(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
               ) -> tuple[Tensor, Tensor]:
        """Rotate queries (B, heads, Lq, head_dims) and keys (B, heads, Lk, head_dims). Queries may
        be scaled before or after."""
        query, key = as_grid(q_grid, 'q_grid', any_axes=True), key_grid(q_grid, k_grid)
        for name, grid in (('q_grid', query), ('k_grid', key)):
            if grid.frames > 1 and self.dims < 3 or grid.height > 1 and self.dims < 2:
                raise ValueError(f'{name}={grid.shape} has more axes than dims={self.dims} of '
                                 f'{type(self).__name__}')
        like = like_at_least_float32(q)
        change = self.positions.random_change(like) if self.training else None
        turn = self.turn(query, query, like, change)
        other = turn if key == query else self.turn(key, query, like, change)
        halves = self.planes == 'halves'
        if self.temperature is not None:
            factor = sharpening_factor(self.temperature, key, self.grid_shape, self.dims, like)
            q = (q * factor).to(q.dtype)
        return turn_planes(q, turn, halves), turn_planes(k, other, halves)

    def turn(self, grid: Grid, query: Grid, like: Tensor, change: Change | None = None,
             back: bool = False) -> Turn:
        """What turns the planes of all tokens of a grid, or turns them back."""
        def make() -> Turn:
            angles = self.angles(grid, query, like, change)
            return turn_of(-angles if back else angles, self.planes == 'halves')

        varies = self.directions == 'learned' or change is not None
        return self._stored(make, like, grid, query, back, varies=varies)

    def angles(self, grid: Grid, query: Grid, like: Tensor, change: Change | None = None) -> Tensor:
        """The angles (1 or heads, L, head_dims / 2) by which the planes of all tokens turn; for
        'halves' those of all channels, of which the first half are negative."""
        prefix, second = self.num_prefix_tokens, self.register_grid
        places = self._stored(lambda: F.pad(self._places(self.positions, grid, query, like),
                                            (0, 0, prefix, 0)), like, grid, query)
        if change is not None:
            shift, scale = change
            if shift is not None:
                places = F.pad(places[:, prefix:] + shift[:, None, None], (0, 0, prefix, 0))
            places = places * scale[:, None, None]
        if self.clamp:
            return self._clamped_angles(places, query, like, change)
        freqs = self._stored(
            lambda: self._signed(self._freqs_of_axes(query, like, self.frequencies)), like, query,
            varies=self.directions == 'learned')
        angles = _sum_of_axes(places, freqs)
        if second is None:
            return angles
        registers = _sum_of_axes(
            self._places(Positions(), second, second, like),
            self._signed(self._freqs_of_axes(second, like, self.register_frequencies)))
        unturned = angles[:, :prefix - second.num_cells]
        return torch.cat((unturned, registers, angles[:, prefix:]), 1)

    def _stored(self, make: Callable[[], _T], like: Tensor, *key: object, varies: bool = False
                ) -> _T:
        """What depends on options and grids alone, stored between calls; what is learned or drawn
        is made each time."""
        if varies or 'stores_turns' not in vars(type(self)):
            return make()
        options = (self.head_dims, self.num_heads, self.num_prefix_tokens, self.dims,
                   self.directions, self.axes, self.planes, self.shared_freqs, self.clamp,
                   self.positions, self.frequencies, self.grid_shape, self.register_grid,
                   self.register_frequencies)
        dtype = None if self.directions == 'axes' else self.freqs.dtype
        return stored((options, dtype, like.dtype, key), make, like.device)

    def _places(self, positions: Positions, grid: Grid, query: Grid, like: Tensor) -> Tensor:
        """The coordinates of all cells along each axis, (axes, cells, 1), frames before rows before
        columns."""
        rows, cols = positions.coordinates(grid, query, like)
        frames = frame_coordinates(grid, like)
        size = (grid.frames, grid.height, grid.width)
        along = (frames[:, None, None].expand(size), rows[:, None].expand(size), cols.expand(size))
        return torch.stack(along[3 - self.dims:]).flatten(1)[..., None]

    def _signed(self, x: Tensor) -> Tensor:
        """Frequencies or angles of planes; for 'halves' those of channels, which have a sign."""
        return torch.cat((-x, x), -1) if self.planes == 'halves' else x

    def _freqs_of_axes(self, query: Grid, like: Tensor, frequencies: Frequencies) -> Tensor:
        """The frequencies of all planes along each axis, (axes, heads or 1, 1, planes), in the
        order of :meth:`_places`."""
        if self.directions != 'axes':
            freqs = self.freqs.to(like.dtype)
            return (freqs if self.axes == 'yx' else freqs.flip(0))[:, :, None]
        planes, alternate = self.head_dims // 2, self.axes == 'alternate'
        order = (('x', 'xy', 'tyx') if alternate else
                 ('x', self.axes, f't{self.axes}'))[self.dims - 1]
        height, width = self.grid_shape
        sides = {'t': (1, 1), 'y': (query.height, height), 'x': (query.width, width)}
        of_axes = {}
        for number, axis in enumerate(order):
            freqs = (frequencies.of_side(planes // self.dims, like, *sides[axis])
                     if self.shared_freqs else
                     frequencies.series(planes, like)[number::self.dims])
            if alternate:  # The last axes may have one plane less than the first ones.
                freqs = F.pad(freqs[:, None], (number, self.dims - 1 - number)).flatten()[:planes]
            before = 0 if alternate else number * len(freqs)
            of_axes[axis] = F.pad(freqs, (before, planes - before - len(freqs)))
        return torch.stack([of_axes[axis] for axis in 'tyx'[3 - self.dims:]])[:, None, None]

    def _clamped_angles(self, places: Tensor, query: Grid, like: Tensor, change: Change | None
                        ) -> Tensor:
        """The angles for positions that are clamped to the sides of the query grid."""
        freqs = self._freqs_of_axes(query, like, self.frequencies)
        ends = torch.stack([x[[0, -1]] for x in self.positions.coordinates(query, query, like)])
        if change is not None:
            shift, scale = change
            ends = (ends if shift is None else ends + shift[:, None]) * scale[:, None]
        middle, (tall, wide) = ends.mean(1)[:, None, None], ((ends[:, 1] - ends[:, 0]) / 2).unbind()
        # Directions close to the first axis are clamped by it, the others by the second.
        next_to_first = self.freqs[0] > 1e-9
        along_rows = next_to_first if self.axes == 'yx' else ~next_to_first
        most = freqs.square().sum(0).sqrt() * torch.where(along_rows[:, None], tall, wide)
        angles = ((places - middle)[:, None] * freqs).sum(0).clamp(-most, most) + most
        prefix = self.num_prefix_tokens
        return self._signed(F.pad(angles[:, prefix:], (0, 0, prefix, 0)))


def _sum_of_axes(places: Tensor, freqs: Tensor) -> Tensor:
    """The angles (heads or 1, L, planes) of coordinates along each axis, (axes, L, 1), and
    frequencies (axes, heads or 1, 1, planes)."""
    angles = places[0] * freqs[0]
    for each, freq in zip(places[1:], freqs[1:], strict=True):
        angles = torch.addcmul(angles, each, freq)
    return angles
