"""Tells what torch does at the moment: compile, export, cast, and whether calls of layers are more
than their formulas. torch before 2.7 lacks some of these functions.

Code asks :func:`may_branch_on` where numbers decide what runs, :func:`~.masking.are_known_equal`
where sizes do, and ``is_compiling`` or ``is_exporting`` only where it chooses an implementation.
"""
from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

if hasattr(torch.compiler, 'is_compiling'):
    is_compiling = torch.compiler.is_compiling
else:  # This is torch 2.1.
    is_compiling = torch._dynamo.external_utils.is_compiling


is_exporting = getattr(torch.compiler, 'is_exporting', lambda: False)


_P = ParamSpec('_P')
_R = TypeVar('_R')
#: What has ``torch.compile`` leave out each function that is :func:`uncompiled`.
_DISABLE: list[Callable[[], None]] = []


def uncompiled(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A decorator like ``torch.compiler.disable``, which imports the compiler at once and so takes
    seconds; this one waits until something else imports it."""
    @functools.wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        return function(*args, **kwargs)

    def disable() -> None:
        nonlocal function
        function = torch.compiler.disable(function)
        torch._dynamo.decorators.skip(run)

    _DISABLE.append(disable)
    if 'torch._dynamo' in sys.modules:
        disable_all()
    return run


def disable_all(*_: ModuleType) -> None:
    """Have ``torch.compile`` leave out the functions that are :func:`uncompiled`. This runs when
    torch's compiler is imported (``compat/finders.py``)."""
    while _DISABLE:
        _DISABLE.pop()()


def may_branch_on(x: Tensor) -> bool:
    """Whether the numbers in a tensor may decide what runs. They may not while a model is compiled
    or exported, whose code must be for all numbers, nor under ``vmap``, nor on the meta device,
    which has no numbers."""
    return not (is_compiling() or is_transforming() or x.is_meta)


def full_precision(like: Tensor) -> AbstractContextManager[object]:
    """A context without autocast. The meta device does not have autocast."""
    return nullcontext() if like.is_meta else torch.autocast(like.device.type, enabled=False)


def is_transforming() -> bool:
    """Whether code runs inside ``torch.func.grad``, ``vmap`` and the like, which accept only
    torch's own operators."""
    return not is_compiling() and torch._C._are_functorch_transforms_active()


def autocast_dtype(device: str) -> torch.dtype | None:
    """The dtype in which autocast computes on a type of devices; None where it is off."""
    if hasattr(torch, 'get_autocast_dtype'):
        return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    if device == 'cpu':  # This is torch before 2.4.
        return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
    return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None


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
    has_global_hooks = any(bool(getattr(torch_module, f'_global{name}', None)) for name in _HOOKS)
    return not has_global_hooks and all(map(_is_formula, layers))


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
