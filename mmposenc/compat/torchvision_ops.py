"""The two operator schemas that ``import torchvision`` needs when its binary can't load."""
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
