"""Chooses the dtype in which operators compute, and whether torchvision's kernel is used instead.
"""
import contextlib
import importlib

import torch


def compute_dtype(tensor: torch.Tensor) -> torch.dtype:
    """The dtype to compute in: float32 for half precision, because mmcv's kernels sum in it,
    otherwise the tensor's own."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def has_kernel(name: str, like: torch.Tensor) -> bool:
    """Whether torchvision's binary has loaded and has the operator for an accelerator. On a CPU the
    functions here are used, because they decide every tie as mmcv's kernels do."""
    if like.device.type in ('cpu', 'meta'):
        return False
    with contextlib.suppress(ImportError, RuntimeError):
        importlib.import_module('torchvision')
    return hasattr(torch.ops.torchvision, name) and (
        torch._C._dispatch_has_kernel_for_dispatch_key(f'torchvision::{name}',
                                                       like.device.type.upper()))
