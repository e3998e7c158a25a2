"""Stands in for ``mmcv._ext`` where mmcv was installed without compiled operators.

A few operators run in pure PyTorch; every other one exists, and says what it lacks when called.
"""
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NoReturn

from .deform_attn import ms_deform_attn_backward, ms_deform_attn_forward
from .deform_conv import (
    deform_conv_backward_input,
    deform_conv_backward_parameters,
    deform_conv_forward,
)
from .focal_loss import sigmoid_focal_loss_backward, sigmoid_focal_loss_forward
from .nms import nms
from .nms_match import nms_match
from .roi_align import roi_align_backward, roi_align_forward
from .soft_nms import softnms

NOT_COMPILED = 'not compiled (mmposenc.compat)'

OPS: dict[str, Callable[..., Any]] = {
    'nms': nms,
    'softnms': softnms,
    'nms_match': nms_match,
    'roi_align_forward': roi_align_forward,
    'roi_align_backward': roi_align_backward,
    'sigmoid_focal_loss_forward': sigmoid_focal_loss_forward,
    'sigmoid_focal_loss_backward': sigmoid_focal_loss_backward,
    'ms_deform_attn_forward': ms_deform_attn_forward,
    'ms_deform_attn_backward': ms_deform_attn_backward,
    'deform_conv_forward': deform_conv_forward,
    'deform_conv_backward_input': deform_conv_backward_input,
    'deform_conv_backward_parameters': deform_conv_backward_parameters,
    'get_compiler_version': lambda: NOT_COMPILED,
    'get_compiling_cuda_version': lambda: NOT_COMPILED,
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


def get_op(name: str) -> Callable[..., Any]:
    """Returns the operator called ``name``, as attribute access on the module does.

    Raises:
        AttributeError: for names that start with an underscore, which no operator does.
    """
    if name.startswith('_'):
        raise AttributeError(f"module 'mmcv._ext' has no attribute {name!r}")
    if name in OPS:
        return OPS[name]

    def missing(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f'the mmcv operator {name!r} is not available: this mmcv was installed without '
            f'compiled operators, and mmposenc has no PyTorch form of this one. Build mmcv with '
            'its operators (needs a C++ compiler, for CUDA also nvcc and FORCE_CUDA=1; takes half '
            f'an hour or more):\n    {build_recipe()}')

    missing.__name__ = missing.__qualname__ = name
    return missing
