"""Operators without a PyTorch form, and their error when a layer is built or called."""
import sys
from collections.abc import Callable
from functools import wraps
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any, NoReturn

#: Operators that mmcv has kernels for on a CPU too; of all others only for CUDA.
ON_CPU = {
    'active_rotated_filter_backward', 'active_rotated_filter_forward', 'bbox_overlaps',
    'bezier_align_backward', 'bezier_align_forward', 'box_iou_quadri', 'box_iou_rotated',
    'contour_expand', 'dynamic_voxelize_forward', 'hard_voxelize_forward', 'nms_quadri',
    'nms_rotated', 'pixel_group', 'points_in_boxes_cpu_forward', 'roi_align_rotated_backward',
    'roi_align_rotated_forward', 'rotated_feature_align_backward', 'rotated_feature_align_forward'}
#: Layers of mmcv.ops that no device runs without the operator named here.
LAYERS = {
    'BezierAlign': 'bezier_align_forward',
    'BorderAlign': 'border_align_forward',
    'Correlation': 'correlation_forward',
    'DynamicScatter': 'dynamic_point_to_voxel_forward',
    'PrRoIPool': 'prroi_pool_forward',
    'QueryAndGroup': 'group_points_forward',
    'RiRoIAlignRotated': 'riroi_align_rotated_forward',
    'RoIAlignRotated': 'roi_align_rotated_forward',
    'RoIAwarePool3d': 'roiaware_pool3d_forward',
    'RoIPointPool3d': 'roipoint_pool3d_forward',
    'RoIPool': 'roi_pool_forward',
    'SoftmaxFocalLoss': 'softmax_focal_loss_forward',
    'SparseConvolution': 'indice_conv_forward',
    'SparseMaxPool': 'indice_maxpool_forward',
    'TINShift': 'tin_shift_forward',
    'Voxelization': 'hard_voxelize_forward',
}


def build_recipe() -> str:
    """The command that replaces the installed mmcv by the same version with its operators."""
    for name in ('onedl-mmcv', 'mmcv', 'mmcv-lite'):
        try:
            release = version(name)
        except PackageNotFoundError:
            continue
        name = name.removesuffix('-lite')
        return ('MMCV_WITH_OPS=1 pip install --no-build-isolation --no-deps --no-cache-dir '
                f'--force-reinstall --no-binary {name} {name}=={release}')
    return 'MMCV_WITH_OPS=1 pip install --no-build-isolation .   (in a clone of mmcv)'


def refuse(operator: str, layer: str | None = None) -> NoReturn:
    """Raises a NotImplementedError that says what is missing and what would help."""
    needs = f', which {layer} needs,' if layer else ''
    if operator in ON_CPU:
        cure = ('A build of mmcv with its operators has it, for a CPU too. It needs a C++ compiler '
                '(for CUDA also nvcc and FORCE_CUDA=1) and half an hour or more:')
    else:
        cure = ('mmcv has it only for CUDA: on a CPU nothing runs it. For a GPU, build mmcv with '
                'its operators, which needs a C++ compiler and nvcc, and half an hour or more:\n'
                '    FORCE_CUDA=1 \\')
    raise NotImplementedError(
        f'the mmcv operator {operator!r}{needs} is not available: this mmcv was installed without '
        'compiled operators, and mmposenc has PyTorch forms of those that models of mmdet and '
        'mmseg use, not of RoIPool and of operators for rotated boxes, points, GANs, scene text '
        f'and video. {cure}\n    {build_recipe()}')


def missing(operator: str) -> Callable[..., NoReturn]:
    """An operator that says what it lacks when it is called."""
    def call(*args: Any, **kwargs: Any) -> NoReturn:
        refuse(operator)

    call.__name__ = call.__qualname__ = operator
    return call


def refuse_layers(ops: ModuleType) -> None:
    """Makes the layers of ``mmcv.ops`` that cannot run say so when they are built.

    Without it a model fails in its first step, after all data were loaded.
    """
    spec = getattr(sys.modules.get('mmcv._ext'), '__spec__', None)
    if spec is None or spec.origin != 'mmposenc.operators.ext':
        return  # compiled
    inside = [module for name, module in sys.modules.items() if name.startswith(ops.__name__ + '.')]
    for name, operator in LAYERS.items():
        for layer in {getattr(module, name) for module in inside if hasattr(module, name)}:
            layer.__init__ = _refusing(layer.__init__, operator)


def _refusing(init: Callable[..., None], operator: str) -> Callable[..., None]:
    @wraps(init)
    def refusing(self: Any, *args: Any, **kwargs: Any) -> None:
        refuse(operator, type(self).__name__)

    return refusing
