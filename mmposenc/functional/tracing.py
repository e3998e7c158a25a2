"""What torch does with what runs now: compile, export, cast. torch before 2.7 lacks some of it."""
from __future__ import annotations

import torch

if hasattr(torch.compiler, 'is_compiling'):
    is_compiling = torch.compiler.is_compiling
else:  # torch 2.1
    is_compiling = torch._dynamo.external_utils.is_compiling


def _never() -> bool:
    return False


is_exporting = getattr(torch.compiler, 'is_exporting', _never)


def autocast_dtype(device: str) -> torch.dtype | None:
    """What autocast computes in on a type of devices; None where it is off."""
    if hasattr(torch, 'get_autocast_dtype'):
        return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    if device == 'cpu':  # torch before 2.4
        return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
    return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None
