"""Combines the arguments of a backbone's ``arch`` with explicit arguments."""
from __future__ import annotations

import copy
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...checkpoint.encoding_names import SLOTS
from ...config_types import ConfigType
from ...encodings import build
from ...signatures import parameters_of
from ..optional_mmengine import print_log


def arch_options(archs: Mapping[str, ConfigType], sizes: Sequence[str], arch: str | None,
                 explicit: ConfigType) -> ConfigType:
    """Arguments of a backbone: those of an arch, overridden by explicit ones.

    Args:
        archs: the arguments of each arch.
        sizes: names of the required arguments.
        arch: a key of ``archs``, or None.
        explicit: explicit arguments. A size of None means that of the arch. The dict of an encoding
            without ``type`` changes single settings of the arch's encoding; a dict with ``type``
            replaces it. If a dict of the same type leaves settings out, a warning is logged.

    Returns:
        The arguments.

    Raises:
        ValueError: the arch is unknown, or it is None and sizes are missing.
    """
    names = ', '.join(map(repr, archs))
    if arch is not None and arch not in archs:
        raise ValueError(f'arch={arch!r} must be one of {names}, or None with '
                         f'{", ".join(sizes)}')
    explicit = {name: value for name, value in explicit.items()
             if name not in sizes or value is not None}
    options = copy.deepcopy(archs.get(arch or '', {}))
    for name, value in explicit.items():
        default = options.get(name)
        if isinstance(default, dict) and isinstance(value, dict):
            value = _merged_encoding_config(f'arch={arch!r}: {name}', default, value)
        options[name] = value
    missing = [name for name in sizes if name not in options]
    if missing:
        raise ValueError(f'arch=None needs {", ".join(missing)}; or give arch, one of {names}')
    return options


def _merged_encoding_config(where: str, defaults: ConfigType, explicit: ConfigType) -> ConfigType:
    """The config of an encoding: that of the arch with single settings changed, or another one in
    its place."""
    if 'type' not in explicit:
        return {**defaults, **explicit}
    left_out = {key: value for key, value in defaults.items() if key not in explicit}
    old, new = (build.resolve(cfg['type'], where) for cfg in (defaults, explicit))
    if left_out and old is new:
        print_log(f'{where}={dict(explicit)!r} has a type and replaces the whole encoding of the '
                  f'arch, of which it leaves out {left_out}. Leave out type to change single '
                  'settings', 'current', logging.WARNING)
    return explicit


def takes_arch(init: Callable[..., None]) -> Callable[..., None]:
    """A decorator that passes the arguments of an arch to ``__init__(self, arch, *, ...)``.

    The body need not distinguish them from explicit arguments. The signature, by which configs are
    checked, does not change. The archs are those of the class (:attr:`Backbone.archs`).
    """
    @functools.wraps(init)
    def wrapped(self: Any, arch: str | None = None, **explicit: Any) -> None:
        options = arch_options(self.archs, self.sizes, arch, explicit)
        init(self, arch, **options)
        self.replaced_encodings = replaced_encodings(
            type(self), self.archs.get(arch or '', {}),
            {slot: options[slot] for slot in SLOTS if slot in explicit})
        self.encoding_configs = _encoding_configs(type(self), options)
    return wrapped


def _encoding_configs(kind: type, options: ConfigType) -> ConfigType:
    """The configs of the encodings of a model, and their positions. Encodings given as modules are
    left out, because a module can belong to one model only."""
    configs = {name: options.get(name, _default_of_argument(kind, name))
               for name in (*SLOTS, 'positions', 'rel_pos_sharing')}
    return {**configs, **{slot: [each for each in build.listed(configs[slot])
                                 if isinstance(each, dict)] for slot in SLOTS}}


def _default_of_argument(kind: type, name: str) -> Any:
    parameter = parameters_of(kind).get(name)
    return None if parameter is None else parameter.default


def replaced_encodings(kind: type, defaults: ConfigType, explicit: ConfigType) -> dict[str, str]:
    """Which encodings the given ones replace, as a line for each argument, such as
    'rel_pos_encoding: IRPE in place of RelativePositionBias'; '' if nothing is replaced.

    Args:
        kind: the class of the model.
        defaults: the encodings that stand there otherwise, by the name of the argument, where they
            are not those of the signature.
        explicit: those that are given, None too.
    """
    lines = {}
    for slot, encodings in explicit.items():
        old = _classes_in_slot(defaults.get(slot, _default_of_argument(kind, slot)), slot)
        new = _classes_in_slot(encodings, slot)
        names = [' + '.join(kind.__name__ for kind in kinds)
                 for kinds in (new, [kind for kind in old if kind not in new])]
        lines[slot] = names[1] and f'{slot}: {names[0] or "none"} in place of {names[1]}'
    return lines


def _classes_in_slot(encodings: Any, slot: str) -> list[type]:
    """The classes of the encodings in a slot; for a sum, the classes of its parts."""
    kinds = []
    for each in build.listed(encodings):
        if isinstance(each, dict) and 'encodings' in each:
            kinds += _classes_in_slot(each['encodings'], slot)
        else:
            kinds.append(build.resolve(each['type'], slot) if isinstance(each, dict)
                         else type(each))
    return kinds
