"""torchvision's operators where its binary can't load, such as a CPU torch with the CUDA build of
torchvision: what they compute, and their registration under its names.

They equal its CPU kernels but for the order of sums, refuse NaN among scores and regions that are
no regions, and take half precision, which they compute in float32.
"""
from collections.abc import Callable
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


# Stored in the module, because a Library unregisters what it defined when it is garbage-collected.
_LIBRARY = torch.library.Library('torchvision', 'FRAGMENT')
_ROI = 'Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width'
#: Operators by their names and arguments. torchvision cannot be imported without qnms.
SCHEMAS = {
    'nms': '(Tensor dets, Tensor scores, float iou_threshold) -> Tensor',
    'qnms': '(Tensor dets, Tensor scores, float iou_threshold) -> Tensor',
    'roi_align': f'(Tensor input, {_ROI}, int sampling_ratio, bool aligned) -> Tensor',
    '_roi_align_backward': f'(Tensor grad, {_ROI}, SymInt batch_size, SymInt channels, '
                           'SymInt height, SymInt width, int sampling_ratio, bool aligned) '
                           '-> Tensor'}
FORMS: dict[str, Callable[..., Tensor]] = {
    'nms': nms, 'roi_align': roi_align, '_roi_align_backward': roi_align_backward}


def provide_operators(extension: ModuleType) -> None:
    """Gives torchvision its operators, where ``torchvision.extension`` could not load them.

    They are registered under its names for every device, with shapes and derivatives, so that
    ``torch.compile`` and ``torch.export`` see what they always see.

    Args:
        extension: that module, right after its import.
    """
    if extension._has_ops():
        return
    for name, schema in SCHEMAS.items():
        _LIBRARY.define(name + schema)
    if not hasattr(torch.library, 'register_autograd'):
        # With torch before 2.4, torchvision is imported, and its operators say that they are
        # missing.
        return
    for name, form in FORMS.items():
        _LIBRARY.impl(name, form, 'CompositeExplicitAutograd')
    torch.library.register_fake('torchvision::roi_align', _shape_of_features, lib=_LIBRARY)
    torch.library.register_fake('torchvision::_roi_align_backward', _shape_of_gradient,
                                lib=_LIBRARY)
    torch.library.register_autograd('torchvision::roi_align', _gradient, lib=_LIBRARY,
                                    setup_context=_keep_inputs)


def use_operators(module: ModuleType) -> None:
    """Make a module of ``torchvision.ops`` believe that torchvision has its operators, where those
    of this file are in their place."""
    # '_cuda_version' is only in its binary.
    if (hasattr(torch.library, 'register_autograd')
            and not hasattr(torch.ops.torchvision, '_cuda_version')):
        vars(module).update(_has_ops=lambda: True, _assert_has_ops=lambda: None)


def _shape_of_features(input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int,
                       pooled_width: int, sampling_ratio: int, aligned: bool) -> Tensor:
    return input.new_empty(rois.shape[0], input.shape[1], pooled_height, pooled_width)


def _shape_of_gradient(grad: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int,
                       pooled_width: int, batch_size: int, channels: int, height: int, width: int,
                       sampling_ratio: int, aligned: bool) -> Tensor:
    return grad.new_empty(batch_size, channels, height, width)


def _keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.inputs = inputs


def _gradient(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    """The derivative of RoIAlign, by the operator that torchvision has for it."""
    image, rois, scale, height, width, ratio, aligned = ctx.inputs
    by_image = torch.ops.torchvision._roi_align_backward(grad, rois, scale, height, width,
                                                         *image.shape, ratio, aligned)
    return by_image, *[None] * 6
