"""Build an encoding from a module or a config dict, with or without OpenMMLab installed."""
from __future__ import annotations

import importlib.util
from typing import Any, TypeVar

from torch import nn

from .base import RelativeEncoding, TokenEncoding

EncodingConfig = nn.Module | dict[str, Any]
_Contract = TypeVar('_Contract', bound=TokenEncoding | RelativeEncoding)


def build_encoding(cfg: EncodingConfig, contract: type[_Contract], argument: str,
                   **defaults: Any) -> _Contract:
    """Return ``cfg`` built.

    Args:
        cfg: a module (returned as it is) or a dict with ``type`` ('mmposenc.PEG', 'PEG' or a
            class) and its arguments.
        contract: the contract it must follow, TokenEncoding or RelativeEncoding.
        argument: name of the caller's argument, for error messages.
        defaults: arguments the caller knows (``embed_dims=``, ``head_dims=``, ...); a dict's own
            win, and those a class does not take are left out.

    Raises:
        ValueError: for an unknown type, a module that does not follow the contract, or a config
            that is neither.
    """
    if isinstance(cfg, nn.Module):
        module = cfg
    elif isinstance(cfg, dict):
        if 'type' not in cfg:
            raise ValueError(f"{argument}={cfg!r} has no 'type'; name an encoding, for example "
                             f"dict(type='mmposenc.PEG')")
        kwargs = {key: value for key, value in cfg.items() if key != 'type'}
        cls = _resolve(cfg['type'], argument)
        known = {key: value for key, value in defaults.items() if _takes(cls, key)}
        try:
            module = cls(**{**known, **kwargs})
        except TypeError as error:
            raise ValueError(f'{argument}={cfg!r}: {error}') from error
    else:
        raise ValueError(f'{argument}={cfg!r} must be a dict with a type, or a module')
    if not isinstance(module, contract):
        raise ValueError(f'{argument}: {type(module).__name__} is no {contract.__name__}')
    return module


def _takes(cls: type, name: str) -> bool:
    import inspect
    parameters = inspect.signature(cls).parameters
    return name in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _resolve(name: Any, argument: str) -> type:
    """The class of a type name; through the registry where mmengine is installed."""
    from .. import encodings
    if isinstance(name, type):
        return name
    cls = None
    if importlib.util.find_spec('mmengine') is not None:
        from ..registry import MODELS
        cls = MODELS.get(name)
    elif name.removeprefix('mmposenc.') in encodings.__all__:
        cls = getattr(encodings, name.removeprefix('mmposenc.'))
    if not isinstance(cls, type):
        raise ValueError(f'{argument}: unknown encoding type={name!r}; mmposenc has '
                         f'{", ".join(sorted(encodings.ENCODINGS))}')
    return cls
