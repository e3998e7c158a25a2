"""How an arch of a backbone and explicit arguments go together."""
from __future__ import annotations

import copy
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..checkpoint.hub import is_name
from ..encodings import build
from .base import one_name
from .modules import print_log

_Options = dict[str, Any]


def arch_options(archs: Mapping[str, _Options], sizes: Sequence[str], arch: str | None,
                 given: _Options) -> _Options:
    """Arguments of a backbone: those of an arch, and the given ones in their place.

    Args:
        archs: the arguments of each arch.
        sizes: arguments that are required.
        arch: a name out of ``archs``, or None.
        given: explicit arguments. Of the sizes None stands for the arch's own. The dict of an
            encoding without a ``type`` changes single settings of the arch's encoding; one with a
            type replaces it whole, which is logged as a warning where it leaves out settings of the
            same type.

    Raises:
        ValueError: for an unknown arch, or sizes that are missing without one.
    """
    names = ', '.join(map(repr, archs))
    if arch is not None and arch not in archs:
        raise ValueError(f'arch={arch!r} must be one of {names}, or None with '
                         f'{", ".join(sizes)}')
    given = {name: value for name, value in given.items()
             if name not in sizes or value is not None}
    options = copy.deepcopy(archs.get(arch or '', {}))
    for name, value in given.items():
        own = options.get(name)
        if isinstance(own, dict) and isinstance(value, dict):
            value = _encoding(f'arch={arch!r}: {name}', own, value)
        options[name] = value
    missing = [name for name in sizes if name not in options]
    if missing:
        raise ValueError(f'arch=None needs {", ".join(missing)}; or give arch, one of {names}')
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


def takes_arch(archs: Mapping[str, _Options], sizes: Sequence[str],
               told: Callable[[str], _Options] | None = None, **aliases: str
               ) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let ``__init__(self, arch, *, ...)`` see the arguments of an arch as if they were given.

    In the body a preset and an explicit argument are the same thing; the signature stays, which
    configs are checked by.

    Args:
        archs, sizes: as of :func:`arch_options`.
        told: gives the arguments, ``arch`` among them, for weights of a repository ('hf://...'),
            where neither arch nor sizes are given.
        aliases: other names of arguments, and theirs.
    """
    def decorated(init: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(init)
        def wrapped(self: Any, arch: str | None = None, **given: Any) -> None:
            for alias, name in aliases.items():
                both = {each: given.pop(each, None) for each in (name, alias)}
                given[name] = one_name(**both)
            if told and arch is None and all(given.get(name) is None for name in sizes):
                given = _of_repository(given, told)
                arch = given.pop('arch', None)
            init(self, arch, **arch_options(archs, sizes, arch, given))
        return wrapped
    return decorated


def _of_repository(given: _Options, told: Callable[[str], _Options]) -> _Options:
    """The given arguments on top of those told by the repository of the weights, if they are of
    one."""
    init_cfg = given.get('init_cfg')
    name = init_cfg.get('checkpoint') if isinstance(init_cfg, dict) else None
    if name is None or not is_name(name):
        return given
    found = told(name)
    print_log(f'{name}: {", ".join(f"{key}={value!r}" for key, value in found.items())}', 'current')
    return {**found, **given}
