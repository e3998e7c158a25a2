"""Build an encoding from a module or a config dict, with or without OpenMMLab installed."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from torch import nn

from ..class_index import class_of_name
from ..config_types import ConfigType
from ..functional.grids import as_grid
from ..signatures import accepted_arguments, parameters_of
from ..terminal.messages import suggestion_text
from ..user_classes import class_of_file, is_file_class
from .base import RelativeConfig, RelativeEncoding, TokenEncoding

EncodingConfig = nn.Module | ConfigType
_Module = TypeVar('_Module', bound=nn.Module)
_Contract = TypeVar('_Contract', bound=TokenEncoding | RelativeEncoding)


def listed(configs: Any) -> list[Any]:
    """``configs`` as a list: a single item becomes a list of one, None an empty list."""
    if isinstance(configs, (list, tuple)):
        return list(configs)
    return [] if configs is None else [configs]


def build_encoding(cfg: EncodingConfig | RelativeConfig, contract: type[_Contract], argument: str,
                   **defaults: Any) -> _Contract:
    """Build an encoding from ``cfg``.

    Args:
        cfg: a module (returned as it is) or a dict with ``type`` ('mmposenc.PEG', 'PEG' or a
            class) and its arguments. With ``zero_init=True`` the encoding starts from weights that
            change nothing (``start_at_zero``), so that it can be added to a trained model. With
            ``blocks=[6, 7]`` a model has it only inside these blocks, or after them if it encodes
            tokens; blocks are counted through all stages. A list of relative encodings becomes
            their sum (``CombinedRPE``).
        contract: the required base class, TokenEncoding or RelativeEncoding.
        argument: name of the caller's argument, for error messages.
        defaults: arguments that the caller knows (``embed_dims=``, ``head_dims=``, ...). Values in
            the dict take precedence; those that the class does not accept are ignored. The
            ``window_size``, ``max_size`` or ``max_tokens`` of a class follow from ``grid_shape``.

    Raises:
        ValueError: for an unknown type, missing or unknown arguments, a module of another base
            class or for other numbers of heads, channels or prefix tokens, or a config that is
            neither a dict nor a module.
    """
    if isinstance(cfg, (list, tuple)) and contract is RelativeEncoding:
        cfg = _config_of_sum(cfg, argument)
    if isinstance(cfg, nn.Module):
        module = cfg
    elif isinstance(cfg, dict):
        if 'type' not in cfg:
            raise ValueError(f"{argument}={cfg!r} has no 'type'; name an encoding, for example "
                             f"dict(type='mmposenc.PEG')")
        cls = resolve(cfg['type'], argument)
        if not issubclass(cls, contract):
            raise wrong_contract_error(cls, contract, argument)
        arguments = _arguments_with_defaults(cls, cfg, defaults)
        zero_init, blocks = arguments.pop('zero_init', False), arguments.pop('blocks', None)
        module = construct_or_name_config(cls, arguments, f'{argument}={cfg!r}')
    else:
        from .. import encodings
        similar = suggestion_text(cfg, encodings.ENCODINGS) if isinstance(cfg, str) else ''
        example = 'IRPE' if contract is RelativeEncoding else 'PEG'
        raise ValueError(f'{argument}={cfg!r} must be a dict with a type, such as '
                         f"dict(type='mmposenc.{example}'), or a module{similar}")
    if not isinstance(module, contract):
        raise wrong_contract_error(type(module), contract, argument)
    for name in ('head_dims', 'num_heads', 'num_prefix_tokens'):
        size, wanted = getattr(module, name, None), defaults.get(name)
        if None not in (size, wanted) and size != wanted:
            hint = '' if isinstance(cfg, nn.Module) or name in cfg else (
                f'; {type(module).__name__} must take {name}, and store it as its attribute')
            raise ValueError(f'{argument} has {name}={size}, but {name}={wanted} is required{hint}')
    if isinstance(cfg, dict) and zero_init:
        module.start_at_zero()
        module.starts_at_zero = True
    if isinstance(cfg, dict) and blocks is not None:
        numbers = blocks if isinstance(blocks, (list, tuple)) else [blocks]
        if not numbers or len(set(numbers)) < len(numbers) or not all(
                type(each) is int and each >= 0 for each in numbers):
            raise ValueError(f'{argument}: blocks={blocks!r} must be different numbers from 0, '
                             'such as [0, 1]')
        module.blocks = tuple(numbers)
    return module


def construct_or_name_config(cls: type[_Module], arguments: ConfigType, named: str) -> _Module:
    """Call ``cls(**arguments)``; ``named`` is the config of these arguments, for error messages.

    Raises:
        ValueError: required arguments are missing, or there are others than those of the class.
    """
    missing = [name for name in _required_arguments(cls) if name not in arguments]
    if missing:
        raise ValueError(f'{named} has no {" and no ".join(missing)}; {cls.__name__} requires it')
    for name in arguments:
        if not _takes_argument(cls, name):
            raise ValueError(f'{named}: {cls.__name__} has no argument {name!r}'
                             f'{suggestion_text(name, accepted_arguments(cls) or ())}')
    try:
        return cls(**arguments)
    except TypeError as error:
        hint = '' if accepted_arguments(cls) is not None else (
            f'; {cls.__name__} takes any argument, so it is given every size: instead of '
            '**options, name those that it needs')
        raise ValueError(f'{named}: {error}{hint}') from error


def _config_of_sum(cfgs: Sequence[object], argument: str) -> ConfigType:
    """The config of a sum of encodings.

    Raises:
        ValueError: for an empty list, or items that are neither configs nor modules.
    """
    if not cfgs:
        raise ValueError(f'{argument}={cfgs!r} must hold at least one encoding')
    for index, each in enumerate(cfgs):
        if not isinstance(each, (dict, nn.Module)):
            raise ValueError(f'{argument}[{index}]={each!r} must be a dict with a type, or a '
                             f'module')
    return dict(type='mmposenc.CombinedRPE', encodings=list(cfgs))


def wrong_contract_error(cls: type, contract: type, argument: str) -> ValueError:
    """The error for an encoding of the other base class; it says which argument takes it."""
    hint = ''
    for other, name in ((TokenEncoding, 'pos_encoding'), (RelativeEncoding, 'rel_pos_encoding')):
        if issubclass(cls, other):
            hint = f', it is a {other.__name__}: give it as {name}'
    return ValueError(f'{argument}: {cls.__name__} is no {contract.__name__}{hint}')


def _arguments_with_defaults(cls: type, cfg: ConfigType, defaults: ConfigType) -> ConfigType:
    """Collect the arguments of an encoding: those of its config, then the caller's defaults, then
    sizes that follow from the caller's grid."""
    sizes = required_sizes(cls, defaults)
    required = _required_arguments(cls)
    known = {name: value for name, value in defaults.items()
             if _takes_argument(cls, name) and not (value is None and name in required)}
    options = {name: value for name, value in cfg.items() if name != 'type'}
    return {**sizes, **known, **options}


def _takes_argument(cls: type, name: str) -> bool:
    names = accepted_arguments(cls)
    return names is None or name in names


def _required_arguments(cls: type) -> list[str]:
    return [name for name, each in parameters_of(cls).items()
            if each.default is each.empty and each.kind is not each.VAR_KEYWORD]


def required_sizes(cls: type, defaults: ConfigType) -> dict[str, object]:
    """The sizes that a relative encoding requires (such as ``window_size``), from a 'grid_shape' of
    ``defaults``. A ``grid_shape`` is passed even if it is optional; other optional sizes, as those
    of LogSpacedCPB, are set only inside windows."""
    if defaults.get('grid_shape') is None:
        return {}
    grid = as_grid(defaults['grid_shape'], 'grid_shape')
    tokens = defaults.get('num_prefix_tokens', 0) + grid.num_cells
    sizes = dict(window_size=grid.hw, max_size=grid.hw, grid_shape=grid.hw, max_tokens=tokens)
    return {name: size for name, size in sizes.items()
            if name in _required_arguments(cls) or name == 'grid_shape'
            and _takes_argument(cls, name)}


def _find_own_or_user_class(name: str) -> object:
    """Find the class that a type names in this package or in a user's file; None if there is none.
    """
    if is_file_class(name):
        return class_of_file(name)
    try:
        return class_of_name(name.removeprefix('mmposenc.'))
    except AttributeError:
        return None


#: The function that finds the class of a type's name. With OpenMMLab installed, the registry
#: replaces it by its own search, which also finds classes of other packages.
find_class: Callable[[str], object] = _find_own_or_user_class


def resolve(name: str | type, argument: str) -> type:
    """The class of a type name.

    Raises:
        ValueError: if there is no such class.
    """
    from .. import encodings
    cls = name if isinstance(name, type) else find_class(name)
    if not isinstance(cls, type):
        similar = suggestion_text(str(name).rpartition('.')[2], encodings.ENCODINGS)
        raise ValueError(f'{argument}: unknown encoding type={name!r}{similar}; mmposenc has '
                         f'{", ".join(sorted(encodings.ENCODINGS))}')
    return cls
