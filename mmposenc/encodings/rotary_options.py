"""Checks which options of rotary positions can be combined."""
from __future__ import annotations

import math

from ..functional.rotary import NORMALIZATIONS, Positions
from .checks import check_choices, check_positive

#: The names that ``directions`` may have; it may also be an even number.
DIRECTIONS = ('axes', 'learned', 'golden', 'hexagonal')


def check_positions(positions: Positions, dims: int) -> None:
    """Check where cells lie."""
    check_choices(normalize=(positions.normalize, (None, *NORMALIZATIONS)), dims=(dims, (1, 2, 3)))
    options = positions._asdict()
    first, normalize, reference_grid = (options[name] for name in (
        'first', 'normalize', 'reference_grid'))
    check_maps(dims, **{name: value for name, value in options.items() if name != 'first'})
    for name, least in (('shift', 0), ('jitter', 1), ('rescale', 1)):
        if options[name] is not None and not least <= options[name] < math.inf:
            raise ValueError(f'{name}={options[name]} must be at least {least}')
    if first and (normalize is not None or dims != 2):
        raise ValueError(f'first={first} with normalize={normalize!r} and dims={dims}: only '
                         f'cells of a map are counted from it')
    if reference_grid is not None and normalize is not None:
        raise ValueError(f'reference_grid={reference_grid!r} and normalize={normalize!r}: '
                         f'coordinates are counted in one way; leave one of them out')


def check_maps(dims: int, **options: object) -> None:
    """Check that options of maps are not used with other axes."""
    for name, value in options.items():
        if dims != 2 and value is not None:
            raise ValueError(f'{name}={value!r} with dims={dims}: it is an option of maps, dims=2')


def check_frequencies(theta: float | None, periods: tuple[float, float] | None) -> None:
    """Check how fast planes turn."""
    check_positive(theta=theta)
    if periods is None:
        return
    if theta is not None:
        raise ValueError(f'theta={theta} and periods={periods!r} both say what the frequencies '
                         f'are; leave one of them out')
    if len(periods) != 2 or not 0 < periods[0] <= periods[1]:
        raise ValueError(f'periods={periods!r} must be (shortest, longest), both > 0')


def check_planes(dims: int, head_dims: int, directions: str | int, axes: str, planes: str,
                 shared_freqs: bool, clamp: bool) -> None:
    """Check which planes turn along which axes or directions."""
    check_choices(axes=(axes, ('xy', 'yx', 'alternate')), planes=(planes, ('adjacent', 'halves')))
    if dims == 2 and (head_dims < 4 or head_dims % 4):
        raise ValueError(f'head_dims={head_dims} must be a positive multiple of 4: two axes of '
                         f'planes of two channels')
    if head_dims < 2 * dims or head_dims % 2:
        raise ValueError(f'head_dims={head_dims} must be even and at least 2 * dims = {2 * dims}')
    check_maps(dims, directions=None if directions == 'axes' else directions)
    number = directions if isinstance(directions, int) else 0
    oblique = number > 1 and number % 2 == 0
    if directions not in DIRECTIONS and not oblique:
        raise ValueError(f'directions={directions!r} must be one of {", ".join(DIRECTIONS)}, or an '
                         f'even number of at least 2')
    if oblique and head_dims % (4 * number):
        raise ValueError(f'directions={directions} and head_dims={head_dims}: each has whole pairs '
                         f'of planes, so head_dims must be a multiple of {4 * number}')
    if directions == 'hexagonal' and head_dims < 6:
        raise ValueError(f"directions='hexagonal' and head_dims={head_dims}: three directions need "
                         f'at least 6 channels')
    if axes == 'alternate' and directions in ('learned', 'golden'):
        raise ValueError(f"axes='alternate' and directions={directions!r}: its planes have a "
                         f"direction each; use 'xy' or 'yx'")
    if not (shared_freqs or oblique or (directions, axes) == ('axes', 'alternate')):
        raise ValueError(f"shared_freqs=False and directions={directions!r}, axes={axes!r}: only a "
                         f"number of directions, or axes that alternate, have frequencies each")
    if clamp and not oblique:
        raise ValueError(f'clamp=True and directions={directions!r}: a number of directions is '
                         f'required')
