"""Stands in for ``mmcv._ext`` where mmcv was installed without compiled operators.

The operators that models of mmdet and mmseg use run in pure PyTorch; every other one exists, and
says what it lacks (:mod:`.missing`).
"""
from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import (
    carafe,
    deform_attn,
    deform_conv,
    focal_loss,
    masked_conv,
    nms,
    psa_mask,
    roi_align,
    sync_bn,
)
from .missing import missing

NOT_COMPILED = 'not compiled (mmposenc.operators)'

#: By the module that has them; functions are called as mmcv's operators are.
_FORMS: dict[ModuleType, str] = {
    carafe: 'carafe_forward carafe_backward',
    deform_attn: 'ms_deform_attn_forward ms_deform_attn_backward',
    deform_conv: 'deform_conv_forward deform_conv_backward_input deform_conv_backward_parameters '
                 'modulated_deform_conv_forward modulated_deform_conv_backward',
    focal_loss: 'sigmoid_focal_loss_forward sigmoid_focal_loss_backward',
    masked_conv: 'masked_im2col_forward masked_col2im_forward',
    nms: 'nms softnms nms_match line_nms_forward',
    psa_mask: 'psamask_forward psamask_backward',
    roi_align: 'roi_align_forward roi_align_backward '
               'deform_roi_pool_forward deform_roi_pool_backward',
    sync_bn: 'sync_bn_forward_mean sync_bn_forward_var sync_bn_forward_output '
             'sync_bn_backward_param sync_bn_backward_data',
}
OPS: dict[str, Callable[..., Any]] = {
    name: getattr(module, name) for module, names in _FORMS.items() for name in names.split()}
OPS.update(dict.fromkeys(('get_compiler_version', 'get_compiling_cuda_version'),
                         lambda: NOT_COMPILED))


def get_op(name: str) -> Callable[..., Any]:
    """Returns the operator called ``name``, as attribute access on the module does.

    Raises:
        AttributeError: for names that start with an underscore, which no operator does.
    """
    if name.startswith('_'):
        raise AttributeError(f"module 'mmcv._ext' has no attribute {name!r}")
    return OPS.get(name) or missing(name)
