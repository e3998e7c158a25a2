"""Operators that only a compiled mmcv has, and the error that is raised when a layer with one is
built or called."""
import sys
from collections.abc import Callable
from functools import wraps
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Any, NoReturn

#: Operators for which mmcv has kernels on a CPU too; all others have them only for CUDA.
ON_CPU = {
    'active_rotated_filter_backward', 'active_rotated_filter_forward', 'bbox_overlaps',
    'bezier_align_backward', 'bezier_align_forward', 'box_iou_quadri', 'box_iou_rotated',
    'contour_expand', 'deform_conv_backward_input', 'deform_conv_backward_parameters',
    'deform_conv_forward', 'dynamic_voxelize_forward', 'hard_voxelize_forward',
    'modulated_deform_conv_backward', 'modulated_deform_conv_forward', 'nms_match', 'nms_quadri',
    'nms_rotated', 'pixel_group', 'points_in_boxes_cpu_forward', 'psamask_backward',
    'psamask_forward', 'roi_align_rotated_backward', 'roi_align_rotated_forward',
    'rotated_feature_align_backward', 'rotated_feature_align_forward', 'softnms'}
#: For layers of mmcv.ops that cannot run anywhere without an operator: its name without '_forward'.
LAYERS = {
    'BezierAlign': 'bezier_align', 'BorderAlign': 'border_align', 'CARAFE': 'carafe',
    'CARAFENaive': 'carafe_naive', 'CARAFEPack': 'carafe', 'Correlation': 'correlation',
    'DeformConv2d': 'deform_conv', 'DeformRoIPool': 'deform_roi_pool',
    'DynamicScatter': 'dynamic_point_to_voxel', 'MaskedConv2d': 'masked_im2col',
    'ModulatedDeformConv2d': 'modulated_deform_conv', 'PrRoIPool': 'prroi_pool',
    'PSAMask': 'psamask', 'QueryAndGroup': 'group_points',
    'RiRoIAlignRotated': 'riroi_align_rotated', 'RoIAlignRotated': 'roi_align_rotated',
    'RoIAwarePool3d': 'roiaware_pool3d', 'RoIPointPool3d': 'roipoint_pool3d',
    'RoIPool': 'roi_pool', 'SoftmaxFocalLoss': 'softmax_focal_loss',
    'SparseConvolution': 'indice_conv', 'SparseMaxPool': 'indice_maxpool',
    'TINShift': 'tin_shift', 'Voxelization': 'hard_voxelize'}


def build_command_text() -> str:
    """The command that replaces the installed mmcv by the same version with its operators.

    It takes half an hour or more, and needs a C++ compiler; with FORCE_CUDA=1 before it, and nvcc,
    it builds the operators for CUDA too.
    """
    for name in ('onedl-mmcv', 'mmcv', 'mmcv-lite'):
        try:
            release = version(name)
        except PackageNotFoundError:
            continue
        name = name.removesuffix('-lite')
        return ('MMCV_WITH_OPS=1 pip install --no-build-isolation --no-deps --no-cache-dir '
                f'--force-reinstall --no-binary {name} {name}=={release}')
    return 'MMCV_WITH_OPS=1 pip install --no-build-isolation .   (in a clone of mmcv)'


def refuse_operator(operator: str, layer: str | None = None) -> NoReturn:
    """Raise a NotImplementedError that says in one line what is missing and what would help."""
    if operator in ON_CPU:
        remedy = 'Install an mmcv with compiled operators: '
    else:
        remedy = ('On a CPU nothing runs it, as mmcv has it only for CUDA. For a GPU, install an '
                  'mmcv with compiled operators: FORCE_CUDA=1 ')
    raise NotImplementedError(
        f'{layer or "this model"} needs the mmcv operator {operator!r}, which the installed mmcv '
        f'was built without and mmposenc does not replace. {remedy}{build_command_text()}')


def missing_operator(operator: str) -> Callable[..., NoReturn]:
    """Return an operator that can be imported and raises an error when it is called."""
    def call(*args: object, **kwargs: object) -> NoReturn:
        refuse_operator(operator)

    call.__name__ = call.__qualname__ = operator
    return call


def refuse_layers(ops: ModuleType) -> None:
    """Make the layers of ``mmcv.ops`` that cannot run raise their error when they are built.

    Without it a model fails in its first step, after all data were loaded.
    """
    spec = getattr(sys.modules.get('mmcv._ext'), '__spec__', None)
    if spec is None or spec.origin != 'mmposenc.compat.ext':
        return  # mmcv is compiled, so nothing is missing.
    inside = [module for name, module in sys.modules.items() if name.startswith(ops.__name__ + '.')]
    for name, operator in LAYERS.items():
        for layer in {getattr(module, name) for module in inside if hasattr(module, name)}:
            layer.__init__ = _refusing_init(layer.__init__, f'{operator}_forward')


def _refusing_init(init: Callable[..., None], operator: str) -> Callable[..., None]:
    @wraps(init)
    def refusing(self: Any, *args: object, **kwargs: object) -> None:
        refuse_operator(operator, type(self).__name__)

    return refusing
