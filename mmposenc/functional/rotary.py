"""Rotary positions: the positions of cells, and the rotation of planes of channels by angles."""
from __future__ import annotations

import math
from statistics import NormalDist

import torch
from torch import Tensor

from .grids import Grid
from .tracing import is_compiling, is_exporting

#: What the sides are divided by, where coordinates go from -1 to 1.
NORMALIZATIONS = ('separate', 'max', 'min')
#: How frequencies change for sides that are longer than in training.
SCALINGS = ('linear', 'ntk', 'yarn')
TEMPERATURES = ('yarn', 'entropy', 'log')


def like_at_least_float32(x: Tensor) -> Tensor:
    """An empty tensor of at least float32, from which others take their dtype: in half precision
    200 * f has an error of 0.1 rad."""
    return torch.empty(0, device=x.device, dtype=torch.promote_types(x.dtype, torch.float32))


def cell_coordinates(grid: Grid, query: Grid, *, normalize: str | None = None,
                     reference: tuple[int, int] | None = None, first: float = 0.0, like: Tensor
                     ) -> tuple[Tensor, Tensor]:
    """Coordinates of rows (H,) and columns (W,) of a grid, in units of the query grid.

    Args:
        grid: whose cells.
        query: the query grid, whose size the coordinates refer to.
        normalize: None counts cells from the first one's centre. 'separate', 'max' and 'min' give
            twice the share of each side, of the longer or of the shorter one, less 1 (DINOv3).
        reference: (H, W) of a grid that the first row and column are those of and whose side stands
            for the side of the query grid (EVA-02); None takes the query grid's own cells.
        first: of the first row and column, in cells of the query grid, where they are counted.
        like: a tensor of the device and dtype.
    """
    sides = query.hw
    if normalize in ('max', 'min'):
        side = max(sides) if normalize == 'max' else min(sides)
        sides = (side, side)
    coordinates = []
    for axis, (size, stride) in enumerate(((grid.height, grid.stride_h),
                                           (grid.width, grid.stride_w))):
        centres = (torch.arange(size, device=like.device, dtype=like.dtype) + 0.5) * stride
        if normalize is not None:
            coordinates.append(2 * (centres / sides[axis]) - 1)
        elif reference is not None:
            coordinates.append((centres - 0.5 + first) / sides[axis] * reference[axis])
        else:
            coordinates.append(centres - 0.5 + first)
    return coordinates[0], coordinates[1]


def frame_coordinates(grid: Grid, like: Tensor) -> Tensor:
    """The positions of frames (T,), counted from the centre of the first frame of the query grid.
    """
    frames = torch.arange(grid.frames, device=like.device, dtype=like.dtype)
    return (frames + 0.5) * grid.stride_t - 0.5


def stretched_frequencies(freqs: Tensor, scaling: str, scale: Tensor,
                          planes: tuple[float, float]) -> Tensor:
    """Frequencies of an axis for a side longer than the trained one.

    Args:
        freqs: (planes,), from the fastest to the slowest.
        scaling: 'linear' divides all by the scale (Chen et al. 2023); 'ntk' the slowest, the others
            by less and less, the fastest by 1; 'yarn' those from the first of ``planes`` on, none
            up to the second, those between in part (Peng et al., ICLR 2024, Sec. 3.2).
        scale: 0-dim, the side over the trained one, at least 1.
        planes: of :func:`planes_that_turn`.
    """
    numbers = torch.arange(len(freqs), device=freqs.device, dtype=freqs.dtype)
    if scaling == 'linear':
        return freqs / scale
    if scaling == 'ntk':
        return freqs * scale ** (-numbers / max(len(freqs) - 1, 1))
    slow, fast = planes
    divided = ((numbers - fast) / (slow - fast)).clamp(0, 1)
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


def hexagonal_planes(planes: int) -> list[list[tuple[float, int]]]:
    """For each of three directions, 120 degrees apart, the angle and the frequency's number of its
    planes; the directions share frequencies."""
    return [[(2 * math.pi / 3 * way, number) for number in range(planes // 3)] for way in range(3)]


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


def planes_that_turn(planes: int, theta: float, side: float, turns: tuple[float, float]
                     ) -> tuple[float, float]:
    """The numbers of the planes, among frequencies ``theta ** (-i / planes)``, that turn this often
    along a side. They are whole numbers, rounded away from each other as in YaRN's release."""
    slow, fast = (planes * math.log(side / (2 * math.pi * each)) / math.log(theta)
                  for each in turns)
    low, high = max(math.floor(fast), 0), min(math.ceil(slow), 2 * planes - 1)
    return (high if high > low else low + 1e-3), low


def sharpening_factor(temperature: str, cells: Tensor, trained: Tensor, axes: int) -> Tensor:
    """The factor for the logits of queries that see this many keys instead of ``trained``.

    'log': log n / log m (Chiang and Cholak, ACL 2022); 'entropy': its root (Jin et al., NeurIPS
    2023, Eq. 8); 'yarn': (0.1 log s + 1)^2 with s >= 1 the scale of a side (Peng et al., Eq. 15).
    """
    if temperature == 'yarn':
        side = (cells / trained).clamp_min(1).log() / axes
        return (0.1 * side + 1) ** 2
    factor = (cells.log() / trained.log()).where(trained > 1, 1.0)
    return factor if temperature == 'log' else factor.sqrt()


def turn_planes(x: Tensor, cos: Tensor, sin: Tensor, *, halves: bool = False) -> Tensor:
    """Turn each plane of x (B, heads, L, 2 * planes) by an angle.

    Args:
        x: the channels; plane i is (2 i, 2 i + 1), with ``halves`` (i, planes + i).
        cos, sin: (1 or heads, L, planes) of the angles.
        halves: the order of the channels.
    """
    if halves:
        first, second = x.to(cos.dtype).chunk(2, -1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)
    planes: Tensor = x.to(cos.dtype).unflatten(-1, (-1, 2))
    if is_compiling():  # A compiler fuses real arithmetic, and has no kernels for complex numbers.
        even, odd = planes.unbind(-1)
        turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1)
    else:  # This takes one pass over memory; with real numbers it takes six times as long.
        turned = torch.view_as_real(_as_complex(planes) * torch.complex(cos, sin))
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
