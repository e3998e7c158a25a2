"""Stands in for ``mmcv._ext`` where mmcv was installed without compiled operators.

The operators that mmdet and mmseg use run in pure PyTorch; every other one exists, and says what it
lacks (:mod:`.missing`).
"""
from collections.abc import Callable
from typing import Any

from .carafe import carafe_backward, carafe_forward, carafe_naive_backward, carafe_naive_forward
from .deform_attn import ms_deform_attn_backward, ms_deform_attn_forward
from .deform_conv import (
    deform_conv_backward_input,
    deform_conv_backward_parameters,
    deform_conv_forward,
)
from .deform_roi_pool import deform_roi_pool_backward, deform_roi_pool_forward
from .focal_loss import (
    sigmoid_focal_loss_backward,
    sigmoid_focal_loss_forward,
    softmax_focal_loss_backward,
    softmax_focal_loss_forward,
)
from .line_nms import line_nms_forward
from .masked_conv import masked_col2im_forward, masked_im2col_forward
from .missing import missing
from .modulated_deform_conv import modulated_deform_conv_backward, modulated_deform_conv_forward
from .nms import nms
from .nms_match import nms_match
from .psa_mask import psamask_backward, psamask_forward
from .roi_align import roi_align_backward, roi_align_forward
from .roi_pool import roi_pool_backward, roi_pool_forward
from .soft_nms import softnms
from .sync_bn import (
    sync_bn_backward_data,
    sync_bn_backward_param,
    sync_bn_forward_mean,
    sync_bn_forward_output,
    sync_bn_forward_var,
)

NOT_COMPILED = 'not compiled (mmposenc.operators)'

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
    'modulated_deform_conv_forward': modulated_deform_conv_forward,
    'modulated_deform_conv_backward': modulated_deform_conv_backward,
    'masked_im2col_forward': masked_im2col_forward,
    'masked_col2im_forward': masked_col2im_forward,
    'psamask_forward': psamask_forward,
    'psamask_backward': psamask_backward,
    'carafe_forward': carafe_forward,
    'carafe_backward': carafe_backward,
    'carafe_naive_forward': carafe_naive_forward,
    'carafe_naive_backward': carafe_naive_backward,
    'roi_pool_forward': roi_pool_forward,
    'roi_pool_backward': roi_pool_backward,
    'deform_roi_pool_forward': deform_roi_pool_forward,
    'deform_roi_pool_backward': deform_roi_pool_backward,
    'softmax_focal_loss_forward': softmax_focal_loss_forward,
    'softmax_focal_loss_backward': softmax_focal_loss_backward,
    'line_nms_forward': line_nms_forward,
    'sync_bn_forward_mean': sync_bn_forward_mean,
    'sync_bn_forward_var': sync_bn_forward_var,
    'sync_bn_forward_output': sync_bn_forward_output,
    'sync_bn_backward_param': sync_bn_backward_param,
    'sync_bn_backward_data': sync_bn_backward_data,
    'get_compiler_version': lambda: NOT_COMPILED,
    'get_compiling_cuda_version': lambda: NOT_COMPILED,
}


def get_op(name: str) -> Callable[..., Any]:
    """Returns the operator called ``name``, as attribute access on the module does.

    Raises:
        AttributeError: for names that start with an underscore, which no operator does.
    """
    if name.startswith('_'):
        raise AttributeError(f"module 'mmcv._ext' has no attribute {name!r}")
    if name in OPS:
        return OPS[name]
    return missing(name)
