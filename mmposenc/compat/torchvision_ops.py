"""torchvision's operators where its binary can't load, such as a CPU torch with the CUDA build of
torchvision: what they compute, and their registration under its names.

They equal its CPU kernels but for the order of sums, refuse NaN among scores and regions that are
no regions, and take half precision, which they compute in float32.
"""
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .nms import nms as greedy
from .precision import compute_dtype
from .roi_align import aligned_features, input_gradient


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Replaces ``torchvision.ops.nms``, which compares with the threshold in float64."""
    if dets.dim() != 2 or dets.shape[1] != 4 or scores.shape != dets.shape[:1]:
        raise ValueError(f'boxes and scores must have shapes (N, 4) and (N,), got '
                         f'{tuple(dets.shape)} and {tuple(scores.shape)}')
    # There is no float32 between this threshold and the given one.
    if compute_dtype(dets) == torch.float32:
        nearest = np.float32(iou_threshold)
        if float(nearest) > iou_threshold:
            nearest = np.nextafter(nearest, np.float32(-np.inf))
        iou_threshold = float(nearest)
    return greedy(dets, scores, iou_threshold, 0)


def roi_align(input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int,
              pooled_width: int, sampling_ratio: int, aligned: bool) -> Tensor:
    """Replaces ``torchvision.ops.roi_align`` for regions (K, 5)."""
    if rois.dim() != 2 or rois.shape[1] != 5:
        raise ValueError(f'rois must have shape (K, 5), got {tuple(rois.shape)}')
    return aligned_features(input, rois, (pooled_height, pooled_width), spatial_scale,
                            sampling_ratio, aligned)


def roi_align_backward(grad: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int,
                       pooled_width: int, batch_size: int, channels: int, height: int, width: int,
                       sampling_ratio: int, aligned: bool) -> Tensor:
    """The derivative of RoIAlign by its input."""
    return input_gradient(grad, rois, (batch_size, channels, height, width), spatial_scale,
                          sampling_ratio, aligned)


FORMS: dict[str, Callable[..., Any]] = {
    'nms': nms, '_cuda_version': lambda: -1,  # Says that torchvision was built without CUDA.
    'roi_align': roi_align, '_roi_align_backward': roi_align_backward,
}


# Stored in the module, because a Library unregisters what it defined when it is garbage-collected.
_LIBRARY = torch.library.Library('torchvision', 'FRAGMENT')

_ROI = 'Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width'
_SHAPE = 'SymInt batch_size, SymInt channels, SymInt height, SymInt width'
_CONV = ('Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, '
         'SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, '
         'SymInt groups, SymInt offset_groups, bool use_mask')
#: Operators that FORMS lacks are registered too, because torchvision's own code asks for them.
SCHEMAS = {
    'nms': '(Tensor dets, Tensor scores, float iou_threshold) -> Tensor',
    'roi_align': f'(Tensor input, {_ROI}, int sampling_ratio, bool aligned) -> Tensor',
    '_roi_align_backward': f'(Tensor grad, {_ROI}, {_SHAPE}, int sampling_ratio, bool aligned) '
                           '-> Tensor',
    'roi_pool': f'(Tensor input, {_ROI}) -> (Tensor, Tensor)',
    '_roi_pool_backward': f'(Tensor grad, {_ROI.replace(",", ", Tensor argmax,", 1)}, {_SHAPE}) '
                          '-> Tensor',
    'ps_roi_align': f'(Tensor input, {_ROI}, int sampling_ratio) -> (Tensor, Tensor)',
    '_ps_roi_align_backward': f'(Tensor grad, {_ROI.replace(",", ", Tensor channel_mapping,", 1)}, '
                              f'int sampling_ratio, {_SHAPE}) -> Tensor',
    'ps_roi_pool': f'(Tensor input, {_ROI}) -> (Tensor, Tensor)',
    '_ps_roi_pool_backward': f'(Tensor grad, {_ROI.replace(",", ", Tensor channel_mapping,", 1)}, '
                             f'{_SHAPE}) -> Tensor',
    'deform_conv2d': f'({_CONV}) -> Tensor',
    '_deform_conv2d_backward': f'(Tensor grad, {_CONV}) -> '
                               '(Tensor, Tensor, Tensor, Tensor, Tensor)',
    '_cuda_version': '() -> int',
    'qnms': '(Tensor dets, Tensor scores, float iou_threshold) -> Tensor',
    'qroi_align': '(Tensor input, Tensor rois, float input_scale, int input_zero_point, float '
                  'rois_scale, int rois_zero_point, float spatial_scale, SymInt pooled_height, '
                  'SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor',
    'box_iou_rotated': '(Tensor boxes1, Tensor boxes2) -> Tensor',
}


def provide_operators(extension: ModuleType) -> None:
    """Gives torchvision its operators, where ``torchvision.extension`` could not load them.

    Args:
        extension: that module, right after its import.

    They are registered under its names for every device, and torchvision is made to believe that it
    has them; its own shape functions, autograd and autocast then apply, so that ``torch.compile``
    and ``torch.export`` see what they always see.
    """
    if extension._has_ops():
        return
    missing = [name for name in SCHEMAS if not hasattr(torch.ops.torchvision, name)]
    for name in missing:
        _LIBRARY.define(name + SCHEMAS[name])
    if not hasattr(torch.library, 'register_autograd'):
        # With torch before 2.4, torchvision is imported, and its operators say that they are
        # missing.
        return
    for name in missing:
        _LIBRARY.impl(name, FORMS.get(name) or operator_without_form(name),
                      'CompositeExplicitAutograd')
    vars(extension).update(_has_ops=lambda: True)
    if 'roi_align' in missing and find_spec('torchvision._autograd_registrations') is None:
        # Only before 0.28 does torchvision's binary have the derivatives itself.
        torch.library.register_autograd('torchvision::roi_align', _gradient, lib=_LIBRARY,
                                        setup_context=_keep)


def operator_without_form(name: str) -> Callable[..., Any]:
    """Return an operator that raises an error which says what it lacks."""
    def missing(*args: object) -> Any:
        raise NotImplementedError(
            f'torchvision::{name} is not available: the binary of this torchvision does not load '
            'with this torch, and mmposenc has PyTorch forms only of what mmdet, mmseg and '
            'mmpretrain use. Install the torchvision that was built for this torch '
            '(https://pytorch.org/get-started)')
    return missing


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.inputs = inputs


def _gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    """The derivative of RoIAlign, by the operator that torchvision has for it."""
    image, rois, scale, height, width, ratio, aligned = ctx.inputs
    by_image = torch.ops.torchvision._roi_align_backward(grad, rois, scale, height, width,
                                                         *image.shape, ratio, aligned)
    return by_image, *[None] * 6
