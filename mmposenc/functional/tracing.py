"""What torch does with what runs now: compile, export, cast. torch before 2.7 lacks some of it.

Code asks :func:`may_read` where numbers decide what runs, :func:`~.masking.known_equal` where sizes
do, and ``is_compiling`` or ``is_exporting`` only where it chooses an implementation.
"""
from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

if hasattr(torch.compiler, 'is_compiling'):
    is_compiling = torch.compiler.is_compiling
else:  # torch 2.1
    is_compiling = torch._dynamo.external_utils.is_compiling


def _never() -> bool:
    return False


is_exporting = getattr(torch.compiler, 'is_exporting', _never)


def uncompiled() -> AbstractContextManager[object]:
    """A context in which compiled modules run as they are written; torch before 2.6 has none."""
    if hasattr(torch.compiler, 'set_stance'):
        return torch.compiler.set_stance('force_eager')
    return nullcontext()


def may_read(x: Tensor) -> bool:
    """Whether the numbers of a tensor may decide what runs: not while a model is compiled or
    exported, whose code is for all of them, not under ``vmap``, and not on the meta device, which
    has none."""
    return not (is_compiling() or is_transforming() or x.is_meta)


def full_precision(like: Tensor) -> AbstractContextManager[object]:
    """A region without autocast, which the meta device has not."""
    return nullcontext() if like.is_meta else torch.autocast(like.device.type, enabled=False)


def is_transforming() -> bool:
    """Whether code runs inside ``torch.func.grad``, ``vmap`` and the like, which take torch's own
    operators only."""
    return not is_compiling() and torch._C._are_functorch_transforms_active()


def autocast_dtype(device: str) -> torch.dtype | None:
    """What autocast computes in on a type of devices; None where it is off."""
    if hasattr(torch, 'get_autocast_dtype'):
        return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    if device == 'cpu':  # torch before 2.4
        return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
    return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None
