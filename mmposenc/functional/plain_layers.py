"""Tells which layers compute nothing but their formula, so that other code may read their weights
instead of calling them."""
from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from .tracing import is_compiling

#: Classes of torch whose forward is the formula in their documentation, and containers of such
#: layers.
_FORMULAS: set[type[nn.Module]] = {
    nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.BatchNorm2d, nn.GroupNorm, nn.ReLU, nn.GELU,
    nn.Dropout, nn.Identity, nn.Sequential}
_HOOKS = ('_forward_hooks', '_forward_pre_hooks', '_backward_hooks', '_backward_pre_hooks')


def mark_as_formula(kind: type[nn.Module]) -> type[nn.Module]:
    """A class decorator: declares that the forward of the class is only a formula of its
    parameters."""
    _FORMULAS.add(kind)
    return kind


def are_plain(*layers: nn.Module) -> bool:
    """Whether calling the layers does nothing but compute their formulas from their parameters.

    Only then may code compute with their weights in another way. All else must be called: hooks
    (of pruning, ``weight_norm``, observers, sharding), parametrizations, adapters, subclasses (fake
    quantization) and replaced methods take effect in the call alone.

    Args:
        layers: layers, or containers of them.
    """
    return not _has_global_hooks() and all(map(_is_formula, layers))


def _has_global_hooks() -> bool:
    return any(bool(getattr(torch_module, f'_global{name}', None)) for name in _HOOKS)


def _is_formula(layer: nn.Module) -> bool:
    if type(layer) not in _FORMULAS or 'forward' in layer.__dict__:
        return False
    if any(bool(getattr(layer, name, None)) for name in _HOOKS):
        return False
    # A compiler wraps parameters in classes of its own.
    if not is_compiling() and not all(type(weight) in (nn.Parameter, Tensor, type(None))
                                      for weight in layer._parameters.values()):
        return False
    return all(map(_is_formula, layer._modules.values()))  # type: ignore[arg-type]


def layer_dtype(layer: nn.Module) -> torch.dtype:
    """The floating-point dtype of what a layer takes, whether or not it has a ``weight``."""
    for parameter in layer.parameters():
        if parameter.is_floating_point():
            return parameter.dtype
    return torch.get_default_dtype()


__all__ = ['are_plain', 'layer_dtype', 'mark_as_formula']
