"""torchvision's operators: its import where its binary cannot load, such as a CPU torch with the
CUDA build of torchvision, and whether it has a kernel for a device."""
import contextlib
import importlib
from types import ModuleType

import torch

# Stored in the module, because a Library unregisters what it defined when it is garbage-collected.
_LIBRARY = torch.library.Library('torchvision', 'FRAGMENT')


def declare_operators(extension: ModuleType) -> None:
    """Declare the operators without which torchvision cannot be imported, where
    ``torchvision.extension`` could not load them. Called, they say that torchvision must match
    torch.

    Args:
        extension: that module, right after its import.
    """
    if not extension._has_ops():
        for name in ('nms', 'qnms'):
            _LIBRARY.define(f'{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor')


def has_kernel(name: str, like: torch.Tensor) -> bool:
    """Whether torchvision's binary has loaded and has the operator for an accelerator. On a CPU the
    functions of this package are used, because they decide every tie as mmcv's kernels do."""
    if like.device.type in ('cpu', 'meta'):
        return False
    with contextlib.suppress(ImportError, RuntimeError):
        importlib.import_module('torchvision')
    return hasattr(torch.ops.torchvision, name) and (
        torch._C._dispatch_has_kernel_for_dispatch_key(f'torchvision::{name}',
                                                       like.device.type.upper()))
