"""Rotary positions: the positions of cells, and the rotation of planes of channels by angles."""
from __future__ import annotations

import math
from itertools import chain
from statistics import NormalDist
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from .grids import Grid
from .tracing import is_compiling, is_exporting

#: What the sides are divided by, where coordinates go from -1 to 1.
NORMALIZATIONS = ('separate', 'max', 'min')
#: How frequencies change for sides that are longer than in training.
SCALINGS = ('linear', 'ntk', 'yarn')
TEMPERATURES = ('yarn', 'entropy', 'log')
#: A shift of rows and columns (2,), or None, and a scale of them (1 or 2,).
Change: TypeAlias = tuple[Tensor | None, Tensor]
#: What planes are turned by: complex numbers, or the cosine and sine of the angles.
Turn: TypeAlias = tuple[Tensor, ...]


def like_at_least_float32(x: Tensor) -> Tensor:
    """An empty tensor of at least float32, from which others take their dtype: in half precision
    200 * f has an error of 0.1 rad."""
    return torch.empty(0, device=x.device, dtype=torch.promote_types(x.dtype, torch.float32))


class Positions(NamedTuple):
    """Where the rows and columns of a grid lie.

    Attributes:
        normalize: None counts cells from the first one's centre. 'separate', 'max' and 'min' give
            twice the share of each side, of the longer or of the shorter one, less 1 (DINOv3).
        reference_grid: (H, W) of a grid that the first row and column are those of and whose side
            stands for the side of the query grid (EVA-02); None counts cells of the query grid.
        first: the number of the first row and column, where cells of the query grid are counted.
        shift, jitter, rescale: the most that :meth:`random_change` shifts and scales by.
    """

    normalize: str | None = None
    reference_grid: tuple[int, int] | None = None
    first: float = 0.0
    shift: float | None = None
    jitter: float | None = None
    rescale: float | None = None

    def coordinates(self, grid: Grid, query: Grid, like: Tensor) -> tuple[Tensor, Tensor]:
        """Coordinates of rows (H,) and columns (W,) of a grid, in units of the query grid.

        Args:
            grid: whose cells.
            query: the query grid, whose size the coordinates refer to.
            like: a tensor of the device and dtype.
        """
        sides = dict(max=(max(query.hw),) * 2, min=(min(query.hw),) * 2).get(
            self.normalize or '', query.hw)
        both = []
        for axis, (size, stride) in enumerate(((grid.height, grid.stride_h),
                                               (grid.width, grid.stride_w))):
            at = (torch.arange(size, device=like.device, dtype=like.dtype) + 0.5) * stride
            if self.normalize is not None:
                at = 2 * (at / sides[axis]) - 1
            else:
                at = at - 0.5 + self.first
                if self.reference_grid is not None:
                    at = at / sides[axis] * self.reference_grid[axis]
            both.append(at)
        return both[0], both[1]

    def random_change(self, like: Tensor) -> Change | None:
        """A random shift and scale of rows and columns; None without augmentation."""
        drawn = [None if most is None else like.new_empty(count).uniform_(-most, most)
                 for most, count in ((self.shift, 2),
                                     (None if self.jitter is None else math.log(self.jitter), 2),
                                     (None if self.rescale is None else math.log(self.rescale), 1))]
        scales = [each for each in drawn[1:] if each is not None]
        if drawn[0] is None and not scales:
            return None
        return drawn[0], sum(scales[1:], scales[0]).exp() if scales else like.new_ones(1)


def frame_coordinates(grid: Grid, like: Tensor) -> Tensor:
    """The positions of frames (T,), counted from the centre of the first frame of the query grid.
    """
    frames = torch.arange(grid.frames, device=like.device, dtype=like.dtype)
    return (frames + 0.5) * grid.stride_t - 0.5


class Frequencies(NamedTuple):
    """How fast the planes of an axis turn.

    Attributes:
        theta: n planes have the periods ``theta ** (i / n)``.
        periods: (shortest, longest) instead, of a geometric series.
        round_periods: round them to bfloat16.
        unit: the angle over the period is a plane's frequency: 1 radian, or a whole turn.
        scaling: how frequencies change for a side that is longer than the trained one: 'linear'
            divides all by the ratio of the sides (Chen et al. 2023); 'ntk' the slowest, the others
            by less and less, the fastest by 1; 'yarn' those from a plane on that turns ``turns[0]``
            times along the trained side, none up to one that turns ``turns[1]`` times, those
            between in part (Peng et al., ICLR 2024, Sec. 3.2).
        turns: the two numbers of turns that 'yarn' needs.
    """

    theta: float = 100.0
    periods: tuple[float, float] | None = None
    round_periods: bool = False
    unit: float = 1.0
    scaling: str | None = None
    turns: tuple[float, float] = (1.0, 32.0)

    def series_of_periods(self, count: int, device: torch.device | None = None) -> Tensor:
        """This many periods, in float64."""
        numbers = torch.arange(count, device=device, dtype=torch.float64)
        if self.periods is None:
            periods = self.theta ** (numbers / count)
        else:
            least, most = self.periods
            periods = least * (most / least) ** (numbers / max(count - 1, 1))
        return periods.bfloat16().double() if self.round_periods else periods

    def series(self, count: int, like: Tensor) -> Tensor:
        """This many frequencies, from the fastest to the slowest, in the dtype of ``like``."""
        return (self.unit / self.series_of_periods(count, like.device)).to(like.dtype)

    def of_side(self, count: int, like: Tensor, side: int, trained: int) -> Tensor:
        """The frequencies for an axis with so many cells now and in training."""
        freqs = self.series(count, like)
        if self.scaling is None:
            return freqs
        # A tensor, because sides may be symbols while a program is exported.
        scale = (like.new_ones(()) * side / trained).clamp_min(1)
        numbers = torch.arange(count, device=freqs.device, dtype=freqs.dtype)
        if self.scaling == 'linear':
            return freqs / scale
        if self.scaling == 'ntk':
            return freqs * scale ** (-numbers / max(count - 1, 1))
        # Whole numbers of planes, rounded away from each other as in YaRN's release.
        slow, fast = (count * math.log(trained / (2 * math.pi * each)) / math.log(self.theta)
                      for each in self.turns)
        fast, slow = max(math.floor(fast), 0), min(math.ceil(slow), 2 * count - 1)
        divided = ((numbers - fast) / (max(slow, fast + 1e-3) - fast)).clamp(0, 1)
        return freqs * (1 - divided + divided / scale)


def oblique_planes(directions: int, planes: int, shared: bool) -> list[list[tuple[float, int]]]:
    """Planes of an even number of directions, all of which lie in perpendicular pairs.

    Args:
        directions: their number.
        planes: the planes of a head.
        shared: whether frequencies are numbered for each direction, or for half of the planes.

    Returns:
        For the directions next to the first axis and for those next to the second, each plane's
        angle from the first axis and the number of its frequency.
    """
    quarter = directions // 2
    first = [(math.pi / directions * (plane // 2 % quarter),
              plane // (2 * quarter) * 2 + plane % 2 if shared else plane)
             for plane in range(planes // 2)]
    return [first, [(angle + math.pi / 2, number) for angle, number in first]]


def planes_in_directions(directions: str | int, planes: int, heads: int, shared: bool,
                         alternate: bool) -> list[tuple[float, int]]:
    """The angle from the first axis and the number of the frequency of each plane of a head; of
    'golden' directions, of each plane of each head.

    Args:
        directions: 'golden', 'hexagonal' (three, 120 degrees apart, that share frequencies), or an
            even number.
        planes: the planes of a head; 'hexagonal' leaves some over that three do not divide.
        heads: their number.
        shared: as for :func:`oblique_planes`.
        alternate: the order is a plane of each direction in turn.
    """
    if directions == 'golden':  # From the slowest to the fastest.
        angles = golden_angles(heads * planes)
        return [(angle, planes - 1 - index % planes) for index, angle in enumerate(angles)]
    blocks = oblique_planes(directions, planes, shared) if isinstance(directions, int) else [
        [(2 * math.pi / 3 * way, number) for number in range(planes // 3)] for way in range(3)]
    return list(chain(*(zip(*blocks, strict=True) if alternate else blocks)))


def golden_angles(count: int) -> list[float]:
    """The angles, from the first axis, of directions that are spread evenly for any ``count``:
    points of a sequence by the plastic number (the golden ratio of two axes), taken as two normal
    numbers."""
    ratio = 2.0
    # The release stops after ten steps too; with more, later directions would differ in a digit.
    for _ in range(10):
        ratio = (1 + ratio) ** (1 / 3)
    normal = NormalDist()
    return [math.atan2(*(normal.inv_cdf(number * ratio ** -axis % 1) for axis in (2, 1)))
            for number in range(1, count + 1)]


def sharpening_factor(temperature: str, key: Grid, trained_grid: tuple[int, int], axes: int,
                      like: Tensor) -> Tensor:
    """The factor for the logits of queries that see the keys of this grid, instead of as many as
    in training, of the same strides.

    'log': log n / log m (Chiang and Cholak, ACL 2022); 'entropy': its root (Jin et al., NeurIPS
    2023, Eq. 8); 'yarn': (0.1 log s + 1)^2 with s >= 1 the scale of a side (Peng et al., Eq. 15).
    """
    cells = like.new_ones(()) * key.num_cells
    trained = like.new_ones(()) * trained_grid[0] * trained_grid[1] / (key.stride_h * key.stride_w)
    if temperature == 'yarn':
        side = (cells / trained).clamp_min(1).log() / axes
        return (0.1 * side + 1) ** 2
    factor = (cells.log() / trained.log()).where(trained > 1, 1.0)
    return factor if temperature == 'log' else factor.sqrt()


def turn_of(angles: Tensor, halves: bool) -> Turn:
    """What :func:`turn_planes` takes, from angles (1 or heads, L, planes); with ``halves`` there
    are as many as channels, those of the first half negative."""
    cos, sin = angles.cos(), angles.sin()
    # A compiler fuses real arithmetic, and has no kernels for complex numbers.
    return (cos, sin) if halves or is_compiling() else (torch.complex(cos, sin),)


def turn_planes(x: Tensor, turn: Turn, halves: bool) -> Tensor:
    """Turn each plane of x (B, heads, L, 2 * planes), which is (2 i, 2 i + 1), with ``halves`` (i,
    planes + i)."""
    if halves:
        cos, sin = turn
        first, second = x.to(cos.dtype).chunk(2, -1)
        swapped = torch.cat((second, first), -1)
        return torch.addcmul(x * cos, swapped, sin).to(x.dtype)
    if len(turn) == 2:
        cos, sin = turn
        even, odd = x.to(cos.dtype).unflatten(-1, (-1, 2)).unbind(-1)
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1)
    else:  # This takes one pass over memory; with real numbers it takes six times as long.
        planes = x.to(turn[0].real.dtype).unflatten(-1, (-1, 2))
        turned = torch.view_as_real(_as_complex(planes) * turn[0])
    return turned.flatten(-2).to(x.dtype)


def _as_complex(planes: Tensor) -> Tensor:
    """View (..., 2) as complex numbers, after a copy where the strides do not allow it."""
    viewable = (planes.stride(-1) == 1 and planes.storage_offset() % 2 == 0
                and all(stride % 2 == 0 for stride in planes.stride()[:-1]))
    return torch.view_as_complex(planes if viewable else planes.contiguous())


def matrix_exp(matrices: Tensor) -> Tensor:
    """The exponential of matrices (..., n, n). Exported formats have no such operator: for them,
    the series of the matrix divided by 2^10 is squared ten times."""
    if not is_exporting():
        return torch.linalg.matrix_exp(matrices)
    small = matrices / 1024
    total = term = torch.eye(small.shape[-1], dtype=small.dtype, device=small.device)
    for order in range(1, 9):
        term = term @ small / order
        total = total + term
    for _ in range(10):
        total = total @ total
    return total
