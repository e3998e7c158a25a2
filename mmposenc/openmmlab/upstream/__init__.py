"""Backbones under their names in mmdet, mmseg and mmpretrain, with these libraries' arguments.

In a config of theirs only the type changes, ``type='mmposenc.SwinTransformer'``, and any argument
of this project may be added. Each class is a backbone of this project with one table a library,
from the library's arguments to ours; defaults are those of the installed library.
"""
from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple

import torch
from mmengine.model import BaseModule
from mmengine.registry import DefaultScope
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from ...backbones.archs import replaced_encodings
from ...backbones.checkpoints import convert_part
from ...backbones.fitting import move_encodings
from ...backbones.optional_mmengine import is_pretrained
from ...checkpoint import convert_with_report
from ...checkpoint.encoding_names import SLOTS, is_encoding_weight
from ...config_types import ConfigType, ReadOnlyConfig
from ...dependencies import how_to_get
from ...signatures import parameters_of
from ...terminal.messages import suggestion_text
from . import groups  # noqa: F401  (it changes mmengine's grouping of parameters)


class Upstream(NamedTuple):
    """A class of another library, with all its arguments: those in a config, and defaults."""

    kind: type[BaseModule]
    args: ReadOnlyConfig


#: What becomes of an argument of a library: the name of our argument, or a function of its value
#: and the other arguments that returns arguments of ours. It raises a ValueError that says what the
#: value must be.
Change = str | Callable[[Any, Upstream], ReadOnlyConfig]
Table = Mapping[str, Change]


class DropIn(nn.Module):
    """What makes a backbone take a library's arguments; its first base class.

    Args:
        options: arguments of the library's class, with its meaning and defaults, and arguments of
            this project's backbone. A name that both have is the library's. Where libraries have
            different classes of this name, it is the one that takes all the arguments; of several
            that of the config's default scope.

    Raises:
        TypeError: an argument that neither has, or arguments of different libraries.
        ValueError: a value that this project's backbone cannot honour.
        ImportError: the library is not installed.
    """

    #: For each library that has a class of this name, the table of all its arguments.
    libraries: ClassVar[Mapping[str, Table]]
    #: Our arguments that equal what the class does in all libraries, without an argument of theirs.
    always: ClassVar[ReadOnlyConfig] = {}
    #: Whether the weights of a whole model may have the library's names.
    takes_upstream_names: ClassVar[bool] = True

    @classmethod
    def our_parameters(cls) -> dict[str, inspect.Parameter]:
        """The arguments for this project's backbone, which is the next base class."""
        return parameters_of(cls.__mro__[cls.__mro__.index(DropIn) + 1])

    @classmethod
    def option_parameters(cls) -> dict[str, inspect.Parameter]:
        """The parameters that ``**options`` may have: our arguments, and those that only libraries
        have."""
        parameters = cls.our_parameters()
        for name in sorted({name for table in cls.libraries.values() for name in table}):
            parameters.setdefault(name, inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY))
        return parameters

    def __init__(self, **options: Any) -> None:
        encodings = {slot: options.pop(slot) for slot in SLOTS if slot in options}
        arguments = self.translated(options)
        super().__init__(**{**arguments, **encodings})
        self.given_encodings, self._options = tuple(encodings), copy.deepcopy(options)
        self.replaced_encodings = replaced_encodings(type(self), arguments, encodings)
        self.register_load_state_dict_pre_hook(_convert_in_place)

    def counterpart(self) -> BaseModule:
        """The library's class with the same arguments, as it is before ``init_weights``."""
        library, kind = self._class_that_takes(self._options)
        with DefaultScope.overwrite_default_scope(library):
            return kind(**{name: copy.deepcopy(value) for name, value in self._options.items()
                           if name in self.libraries[library]})

    def from_counterpart(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The weights of the library's class under the names of this project. Those that it does
        not have here, because other arguments replaced them, are among them."""
        converted = convert_with_report(state).state_dict
        return move_encodings(self, {name.removeprefix('backbone.'): value
                                     for name, value in converted.items()})

    def numbered_counterpart(self) -> tuple[BaseModule, dict[str, nn.Parameter]]:
        """The library's class without memory for its parameters, and which of them each parameter
        here is, or is a part of, by the name that it has here."""
        hook = register_module_parameter_registration_hook(
            lambda module, name, parameter: nn.Parameter(parameter.to('meta')))
        try:
            theirs = self.counterpart()
        finally:
            hook.remove()
        parameters = dict(theirs.named_parameters())
        numbers = {name: torch.tensor(float(number)).expand(parameter.shape)
                   for number, (name, parameter) in enumerate(parameters.items())}
        known, numbered = [*parameters.values()], self.from_counterpart(
            {**theirs.state_dict(), **numbers})
        return theirs, {name: known[int(numbered[name].flatten()[0])]
                        for name, _ in self.named_parameters() if name in numbered}

    def init_weights(self) -> None:
        """Initialise as the library's class does: its initial weights become those here. Encodings
        that a config gives, and what the library does not have, start as this project defines it.
        """
        weights = dict(self.named_parameters())
        if is_pretrained(self.init_cfg) or any(each.is_meta for each in weights.values()):
            super().init_weights()
        elif not self._is_init:
            theirs = self.counterpart()
            theirs._dump_init_info = lambda: None  # The model lists all its parameters itself.
            theirs.init_weights()
            for name, value in self.from_counterpart(theirs.state_dict()).items():
                if name in weights and weights[name].shape == value.shape and (
                        not is_encoding_weight(name, self.given_encodings)):
                    weights[name].data.copy_(value)
            self._is_init = True

    @classmethod
    def translated(cls, options: ReadOnlyConfig) -> ConfigType:
        """The arguments for this project's backbone that mean the same as those of a config."""
        known = cls.option_parameters()
        for name in options:
            if name not in known:
                raise TypeError(f'{cls.__name__} got an unexpected keyword argument {name!r}'
                                f'{suggestion_text(name, known)}')
        library, kind = cls._class_that_takes(options)
        table, arguments = cls.libraries[library], parameters_of(kind)
        defaults = {name: arguments[name].default for name in table if name in arguments
                    and arguments[name].default is not inspect.Parameter.empty}
        upstream = Upstream(kind, {**defaults, **{
            name: value for name, value in options.items() if name in table}})
        translated = dict(cls.always)
        for name, value in upstream.args.items():
            change = table[name]
            try:
                translated |= ({change: value} if isinstance(change, str)
                               else change(value, upstream))
            except ValueError as error:
                raise ValueError(f'{cls.__name__}: {name}={value!r} {error}') from None
        return {**translated, **{name: options[name] for name in options if name not in table}}

    @classmethod
    def _class_that_takes(cls, options: ReadOnlyConfig) -> tuple[str, type[BaseModule]]:
        """The library whose class takes these arguments, and the class."""
        library = cls._library_that_takes(set(options))
        owner = next(each for each in cls.__mro__ if 'libraries' in vars(each))
        return library, getattr(import_module(f'{library}.models'), owner.__name__)

    @classmethod
    def _library_that_takes(cls, names: set[str]) -> str:
        """The library whose class takes these arguments, apart from those that only this project
        has."""
        others = {library: names - set(table) for library, table in cls.libraries.items()}
        ours = set(cls.our_parameters())
        # The sizes of an arch would be overridden by those of a library.
        takers = [library for library in others if others[library] <= ours - {'arch'}]
        if not takers:
            which = '; '.join(f"{library}'s takes no {', '.join(sorted(rest))}"
                              for library, rest in others.items())
            raise TypeError(f'no {cls.__name__} takes all of these arguments: {which}')
        installed = [library for library in takers if find_spec(library)]
        if not installed:
            raise ImportError(f'{cls.__name__} with these arguments is a class of '
                              f'{" and ".join(takers)}, which is not installed'
                              f'{how_to_get(takers[0])}')
        current = DefaultScope.get_current_instance()
        scope = None if current is None else current.scope_name
        return min(installed, key=lambda each: (len(others[each]), each != scope))


def _convert_in_place(backbone: nn.Module, state: dict[str, Tensor], prefix: str,
                      *others: object) -> None:
    """Rename the weights of the library's class in a model to the names of this project."""
    convert_part(backbone, state, prefix)


def same(*names: str) -> Table:
    """A table of arguments that the library and this project call by the same name."""
    return {name: name for name in names}


def only(*values: object) -> Change:
    """Allow only values that change nothing here; any other value is an error."""
    def check(value: object, upstream: Upstream) -> ReadOnlyConfig:
        if value not in values:
            raise ValueError(f'must be {" or ".join(map(repr, values))}')
        return {}
    return check


def one_of(choices: Mapping[Any, ReadOnlyConfig], **named: ReadOnlyConfig) -> Change:
    """Translate each value to arguments of ours, strings by their names; any other value is an
    error."""
    known = {**choices, **named}

    def translate_choice(value: Any, upstream: Upstream) -> ReadOnlyConfig:
        only(*known)(value, upstream)
        return known[value]
    return translate_choice


def sizes_of(arch: str | ReadOnlyConfig, upstream: Upstream) -> ReadOnlyConfig | None:
    """The sizes of mmpretrain's ``arch``: those of a name, None for an unknown name; a dict of
    sizes is returned as it is."""
    return upstream.kind.arch_zoo.get(arch.lower()) if isinstance(arch, str) else arch


def ignored(value: object, upstream: Upstream) -> ReadOnlyConfig:
    """Ignore any value, because the argument has no effect on this network."""
    return {}


def translate_norm(value: ReadOnlyConfig, upstream: Upstream) -> ReadOnlyConfig:
    """Translate the config of all norms."""
    eps = {key: each for key, each in (value or {}).items() if key != 'requires_grad'}
    if eps.pop('type', None) != 'LN' or set(eps) - {'eps'} or not value.get('requires_grad', True):
        raise ValueError("must be dict(type='LN'), which may have eps")
    return {'norm_eps': eps.get('eps', 1e-5)}


def translate_weights(value: str | ReadOnlyConfig | None, upstream: Upstream) -> ReadOnlyConfig:
    """Translate ``init_cfg``, or ``pretrained``, which is a file."""
    if not value:
        return {}
    if upstream.args['init_cfg'] and value is not upstream.args['init_cfg']:
        raise ValueError('is another name of init_cfg; give one')
    return {'init_cfg': dict(type='Pretrained', checkpoint=value) if isinstance(value, str)
            else value}


#: The arguments by which weights are given.
WEIGHTS: Table = {'pretrained': translate_weights, 'init_cfg': translate_weights}
