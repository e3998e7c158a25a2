"""How an arch of ViT and explicit arguments go together."""
from __future__ import annotations

import copy
import functools
import logging
from collections.abc import Callable
from typing import Any

from ..checkpoint.vit_archs import ARCHS, SIZES
from ..encodings import build
from .modules import print_log

__all__ = ['ARCHS', 'arch_options', 'takes_arch']

_Options = dict[str, Any]


def arch_options(arch: str | None, given: _Options) -> _Options:
    """Arguments of ViT: those of an arch, and the given ones in their place.

    Args:
        arch: a name out of :data:`ARCHS`, or None.
        given: explicit arguments. Of the three sizes None stands for the arch's own. The dict of an
            encoding without a ``type`` changes single settings of the arch's encoding; one with a
            type replaces it whole, which is logged as a warning where it leaves out settings of the
            same type.

    Raises:
        ValueError: for an unknown arch, or sizes that are missing without one.
    """
    names = ', '.join(map(repr, ARCHS))
    if arch is not None and arch not in ARCHS:
        raise ValueError(f'arch={arch!r} must be one of {names}, or None with '
                         f'{", ".join(SIZES)}')
    given = {name: value for name, value in given.items()
             if name not in SIZES or value is not None}
    options = copy.deepcopy(ARCHS.get(arch or '', {}))
    for name, value in given.items():
        own = options.get(name)
        if isinstance(own, dict) and isinstance(value, dict):
            value = _encoding(f'arch={arch!r}: {name}', own, value)
        options[name] = value
    missing = [name for name in SIZES if name not in options]
    if missing:
        raise ValueError(f'arch=None needs {", ".join(missing)}; or give arch, one of {names}')
    if options['num_layers'] < 1:
        raise ValueError(f'num_layers={options["num_layers"]} must be at least 1')
    return options


def _encoding(where: str, own: _Options, given: _Options) -> _Options:
    """An encoding's config: the arch's with single settings changed, or another in its place."""
    if 'type' not in given:
        return {**own, **given}
    left_out = {key: value for key, value in own.items() if key not in given}
    own_class, given_class = (kind if isinstance(kind, type) else build.find_class(kind)
                              for kind in (own['type'], given['type']))
    if left_out and own_class is given_class:
        print_log(f'{where}={dict(given)!r} has a type and replaces the whole encoding of the '
                  f'arch, of which it leaves out {left_out}. Leave out type to change single '
                  'settings', 'current', logging.WARNING)
    return given


def takes_arch(init: Callable[..., None]) -> Callable[..., None]:
    """Let ``__init__(self, arch, *, ...)`` see the arguments of an arch as if they were given.

    In the body a preset and an explicit argument are the same thing; the signature stays, which
    configs are checked by.
    """
    @functools.wraps(init)
    def wrapped(self: Any, arch: str | None = None, **given: Any) -> None:
        init(self, arch, **arch_options(arch, given))
    return wrapped
