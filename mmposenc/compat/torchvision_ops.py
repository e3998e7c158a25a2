"""torchvision's operators: which of its kernels there are, and the two schemas that
``import torchvision`` needs when its binary can't load."""
import contextlib
import importlib

import torch

# A Library unregisters what it defined when it is collected, so it has to live here.
_LIBRARY = torch.library.Library('torchvision', 'FRAGMENT')

SCHEMAS = {
    'nms': 'nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor',
    'qnms': 'qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor',
}


def define_schemas() -> None:
    """Defines ``torchvision::nms`` and ``::qnms``, without kernels, unless they are defined.

    torchvision registers shape functions for both at import and fails where the schema is
    missing: a CPU torch beside the CUDA build of torchvision. Its Python transforms need neither.
    """
    for name, schema in SCHEMAS.items():
        if not hasattr(torch.ops.torchvision, name):
            _LIBRARY.define(schema)


def has_kernel(name: str, like: torch.Tensor) -> bool:
    """Whether torchvision's binary has loaded and holds the operator for an accelerator; on a CPU
    this project's own forms follow mmcv's kernels in every tie."""
    if like.device.type == 'cpu':
        return False
    with contextlib.suppress(ImportError, RuntimeError):
        importlib.import_module('torchvision')
    return hasattr(torch.ops.torchvision, name) and (
        torch._C._dispatch_has_kernel_for_dispatch_key(f'torchvision::{name}',
                                                       like.device.type.upper()))
