"""Checks which options of rotary positions can be combined."""
from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..functional.grids import GridLike
from ..functional.rotary import NORMALIZATIONS, SCALINGS, TEMPERATURES
from .checks import check_choices, check_positive, refuse

if TYPE_CHECKING:
    from .rotary import RotaryEmbedding

#: The names that ``directions`` may have; it may also be an even number.
DIRECTIONS = ('axes', 'learned', 'golden', 'hexagonal')


def check_planes(rotary: RotaryEmbedding) -> None:
    """Raise ValueError for planes that cannot turn along these axes or directions."""
    dims, head_dims, directions, axes = (
        rotary.dims, rotary.head_dims, rotary.directions, rotary.axes)
    check_choices(dims=(dims, (1, 2, 3)), axes=(axes, ('xy', 'yx', 'alternate')),
                  planes=(rotary.planes, ('adjacent', 'halves')))
    number = directions if isinstance(directions, int) else 0
    oblique = number > 1 and number % 2 == 0
    if dims == 2 and (head_dims < 4 or head_dims % 4):
        raise ValueError(f'head_dims={head_dims} must be a positive multiple of 4: two axes of '
                         f'planes of two channels')
    if head_dims < 2 * dims or head_dims % 2:
        raise ValueError(f'head_dims={head_dims} must be even and at least 2 * dims = {2 * dims}')
    if directions not in DIRECTIONS and not oblique:
        raise ValueError(f'directions={directions!r} must be one of {", ".join(DIRECTIONS)}, or an '
                         f'even number of at least 2')
    if oblique and head_dims % (4 * number):
        refuse(f'each has whole pairs of planes, so head_dims must be a multiple of {4 * number}',
               directions=directions, head_dims=head_dims)
    if directions == 'hexagonal' and head_dims < 6:
        refuse('three need at least 6 channels', directions=directions, head_dims=head_dims)
    if axes == 'alternate' and directions in ('learned', 'golden'):
        refuse("planes have a direction each; use 'xy' or 'yx'", axes=axes, directions=directions)
    if not (rotary.shared_freqs or oblique or (directions, axes) == ('axes', 'alternate')):
        refuse('only a number of directions, or axes that alternate, have frequencies each',
               shared_freqs=False, directions=directions, axes=axes)
    if rotary.clamp and not oblique:
        refuse('a number of directions is required', clamp=True, directions=directions)


def check_positions(rotary: RotaryEmbedding) -> None:
    """Raise ValueError for cells that cannot lie so."""
    cells, dims = rotary.positions, rotary.dims
    check_choices(normalize=(cells.normalize, (None, *NORMALIZATIONS)))
    for name, value in dict(cells._asdict(), first=None, directions=rotary.directions).items():
        if dims != 2 and value not in (None, 'axes'):
            raise ValueError(f'{name}={value!r} with dims={dims}: it is an option of maps, dims=2')
    for name, value, least in (('shift', cells.shift, 0), ('jitter', cells.jitter, 1),
                               ('rescale', cells.rescale, 1)):
        if value is not None and not least <= value < math.inf:
            raise ValueError(f'{name}={value} must be at least {least}')
    if cells.first and (cells.normalize is not None or dims != 2):
        refuse('first needs normalize=None and dims=2', first=cells.first,
               normalize=cells.normalize, dims=dims)
    if cells.reference_grid is not None and cells.normalize is not None:
        refuse('coordinates are counted in one way; leave one of them out',
               reference_grid=cells.reference_grid, normalize=cells.normalize)


def check_registers(rotary: RotaryEmbedding) -> None:
    """Raise ValueError for registers that cannot be rotated."""
    check_positive(register_theta=rotary.register_frequencies.theta)
    if (grid := rotary.register_grid) is None:
        return
    if rotary.directions != 'axes' or rotary.dims != 2:
        refuse('registers are rotated along two axes', register_grid=grid.hw,
               directions=rotary.directions, dims=rotary.dims)
    if grid.num_cells > rotary.num_prefix_tokens:
        refuse(f'{grid.num_cells} of the tokens before the grid must be registers',
               register_grid=grid.hw, num_prefix_tokens=rotary.num_prefix_tokens)


def check_frequencies(rotary: RotaryEmbedding, theta: float | None, grid_shape: GridLike | None
                      ) -> None:
    """Raise ValueError for planes that cannot turn so fast; ``theta`` is the user's."""
    speed, where, temperature = rotary.frequencies, rotary.positions, rotary.temperature
    scaling, turns = speed.scaling, speed.turns
    check_choices(scaling=(scaling, (None, *SCALINGS)),
                  temperature=(temperature, (None, *TEMPERATURES)))
    check_positive(theta=theta)
    if theta is not None and speed.periods is not None:
        refuse('both say what the frequencies are; leave one of them out', theta=theta,
               periods=speed.periods)
    if speed.periods and (len(speed.periods) != 2 or not 0 < speed.periods[0] <= speed.periods[1]):
        raise ValueError(f'periods={speed.periods!r} must be (shortest, longest), both > 0')
    if scaling is None and temperature is None:
        return
    if grid_shape is None or rotary.dims == 3:
        refuse(f'scaling={scaling!r} and temperature={temperature!r} need the grid trained on, and '
               f'dims=1 or dims=2', grid_shape=grid_shape, dims=rotary.dims)
    for name, value, usual in (
            ('normalize', where.normalize, None), ('reference_grid', where.reference_grid, None),
            ('periods', speed.periods, None), ('directions', rotary.directions, 'axes'),
            ('shared_freqs', rotary.shared_freqs, True)):
        if scaling is not None and value != usual:
            refuse('it scales frequencies of theta along axes, and cells', scaling=scaling,
                   **{name: value})
    if not 0 < turns[0] < turns[1]:
        raise ValueError(f'turns={turns!r} must be (less, more), both > 0')
    if scaling is not None and speed.theta <= 1:
        raise ValueError(f'theta={speed.theta} must be > 1 with scaling={scaling!r}')
