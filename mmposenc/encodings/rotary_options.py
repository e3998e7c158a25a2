"""Checks which options of rotary positions can be combined."""
from __future__ import annotations

import math

from .checks import check_positive

#: The names that ``directions`` may have; it may also be an even number.
DIRECTIONS = ('axes', 'learned', 'golden', 'hexagonal')


def check_dims(dims: int, head_dims: int, **of_maps: object) -> None:
    if dims == 2 and (head_dims < 4 or head_dims % 4):
        raise ValueError(f'head_dims={head_dims} must be a positive multiple of 4: two axes of '
                         f'planes of two channels')
    if head_dims < 2 * dims or head_dims % 2:
        raise ValueError(f'head_dims={head_dims} must be even and at least 2 * dims = {2 * dims}')
    for name, value in of_maps.items():
        if dims != 2 and value is not None:
            raise ValueError(f'{name}={value!r} with dims={dims}: it is an option of maps, dims=2')


def check_directions(directions: str | int, head_dims: int, axes: str, shared_freqs: bool,
                     clamp: bool) -> None:
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


def check_frequencies(theta: float | None, periods: tuple[float, float] | None) -> None:
    check_positive(theta=theta)
    if periods is None:
        return
    if theta is not None:
        raise ValueError(f'theta={theta} and periods={periods!r} both say what the frequencies '
                         f'are; leave one of them out')
    if len(periods) != 2 or not 0 < periods[0] <= periods[1]:
        raise ValueError(f'periods={periods!r} must be (shortest, longest), both > 0')


def check_augmentation(shift: float | None, jitter: float | None, rescale: float | None) -> None:
    for name, value, least in (('shift', shift, 0), ('jitter', jitter, 1), ('rescale', rescale, 1)):
        if value is not None and not least <= value < math.inf:
            raise ValueError(f'{name}={value} must be at least {least}')
