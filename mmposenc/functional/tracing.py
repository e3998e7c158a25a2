"""Tells what torch does at the moment: compile, export, cast. torch before 2.7 lacks some of these
functions.

Code asks :func:`may_branch_on` where numbers decide what runs, :func:`~.masking.are_known_equal`
where sizes do, and ``is_compiling`` or ``is_exporting`` only where it chooses an implementation.
"""
from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

if hasattr(torch.compiler, 'is_compiling'):
    is_compiling = torch.compiler.is_compiling
else:  # This is torch 2.1.
    is_compiling = torch._dynamo.external_utils.is_compiling


def _never() -> bool:
    return False


is_exporting = getattr(torch.compiler, 'is_exporting', _never)


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
