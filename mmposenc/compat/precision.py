"""The dtype in which operators compute, and whether torchvision has a kernel to take instead."""
import contextlib
import importlib

import torch


def compute_dtype(tensor: torch.Tensor) -> torch.dtype:
    """float32 for half precision, as mmcv's kernels accumulate, and else the tensor's own."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def has_kernel(name: str, like: torch.Tensor) -> bool:
    """Whether torchvision's binary has loaded and holds the operator for an accelerator; on a CPU
    this project's own forms follow mmcv's kernels in every tie."""
    if like.device.type in ('cpu', 'meta'):
        return False
    with contextlib.suppress(ImportError, RuntimeError):
        importlib.import_module('torchvision')
    return hasattr(torch.ops.torchvision, name) and (
        torch._C._dispatch_has_kernel_for_dispatch_key(f'torchvision::{name}',
                                                       like.device.type.upper()))
