"""What torchvision's operators compute, in its signatures (:mod:`.torchvision_ops` registers them).

They equal its CPU kernels but for the order of sums, refuse NaN among scores and regions that are
no regions, and take half precision, which they compute in float32.
"""
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import deform_conv as deform
from . import ps_roi, roi_pool
from .nms import nms as greedy
from .precision import compute_dtype
from .roi_align import roi_align_backward, roi_align_forward


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """``torchvision.ops.nms``, which compares with the threshold in float64."""
    if dets.dim() != 2 or dets.shape[1] != 4 or scores.shape != dets.shape[:1]:
        raise ValueError(f'boxes and scores must have shapes (N, 4) and (N,), got '
                         f'{tuple(dets.shape)} and {tuple(scores.shape)}')
    if compute_dtype(dets) == torch.float32:  # no float32 lies between this one and the threshold
        nearest = np.float32(iou_threshold)
        if float(nearest) > iou_threshold:
            nearest = np.nextafter(nearest, np.float32(-np.inf))
        iou_threshold = float(nearest)
    return greedy(dets, scores, iou_threshold, 0)


def check_rois(rois: Tensor) -> None:
    if rois.dim() != 2 or rois.shape[1] != 5:
        raise ValueError(f'rois must have shape (K, 5), got {tuple(rois.shape)}')


def roi_align(input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int,
              pooled_width: int, sampling_ratio: int, aligned: bool) -> Tensor:
    check_rois(rois)
    output = input.new_empty(len(rois), input.shape[1], pooled_height, pooled_width)
    unused = input.new_empty(0)
    roi_align_forward(input, rois, output, unused, unused, pooled_height, pooled_width,
                      spatial_scale, max(sampling_ratio, 0), 1, aligned)
    return output


def _roi_align_backward(grad: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int,
                        pooled_width: int, batch_size: int, channels: int, height: int, width: int,
                        sampling_ratio: int, aligned: bool) -> Tensor:
    found = grad.new_zeros(batch_size, channels, height, width)
    unused = grad.new_empty(0)
    roi_align_backward(grad, rois, unused, unused, found, pooled_height, pooled_width,
                       spatial_scale, max(sampling_ratio, 0), 1, aligned)
    return found


def roi_max(input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int,
            pooled_width: int) -> tuple[Tensor, Tensor]:
    check_rois(rois)
    roi_pool.check_images(rois, len(input))
    bins = roi_pool.torchvision_bins(rois.to(compute_dtype(input)), spatial_scale,
                                     (pooled_height, pooled_width),
                                     (input.shape[2], input.shape[3]))
    values, argmax = roi_pool.largest(input, bins)
    return values.contiguous(), argmax.contiguous()


def _roi_max_backward(grad: Tensor, rois: Tensor, argmax: Tensor, spatial_scale: float,
                      pooled_height: int, pooled_width: int, *shape: int) -> Tensor:
    return roi_pool.spread(grad, rois[:, 0].long(), argmax, shape)


def ps_roi_align(input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int,
                 pooled_width: int, sampling_ratio: int) -> tuple[Tensor, Tensor]:
    check_rois(rois)
    return _whole(ps_roi.forward(input, rois, (pooled_height, pooled_width), spatial_scale,
                                 max(sampling_ratio, 0)))


def _ps_roi_align_backward(grad: Tensor, rois: Tensor, channel_mapping: Tensor,
                           spatial_scale: float, pooled_height: int, pooled_width: int,
                           sampling_ratio: int, *shape: int) -> Tensor:
    return ps_roi.backward(grad, rois, shape, (pooled_height, pooled_width), spatial_scale,
                           max(sampling_ratio, 0))


def ps_roi_pool(input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int,
                pooled_width: int) -> tuple[Tensor, Tensor]:
    check_rois(rois)
    return _whole(ps_roi.forward(input, rois, (pooled_height, pooled_width), spatial_scale, None))


def _ps_roi_pool_backward(grad: Tensor, rois: Tensor, channel_mapping: Tensor,
                          spatial_scale: float, pooled_height: int, pooled_width: int,
                          *shape: int) -> Tensor:
    return ps_roi.backward(grad, rois, shape, (pooled_height, pooled_width), spatial_scale, None)


def _whole(tensors: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return tensors[0].contiguous(), tensors[1].contiguous()


def deform_conv2d(input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor,
                  *options: Any) -> Tensor:
    sizes, use_mask = _sizes(options)
    out = deform.deform_conv(input, offset, mask if use_mask else None, weight, sizes, edge=True)
    return out + bias.to(out.dtype)[:, None, None]


def _deform_conv2d_backward(grad: Tensor, input: Tensor, weight: Tensor, offset: Tensor,
                            mask: Tensor, bias: Tensor, *options: Any) -> tuple[Tensor, ...]:
    sizes, use_mask = _sizes(options)
    # Operators are called below autograd, which the convolution's derivative is taken by.
    with torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.AutogradFunctionality, False):
        found = deform.gradients(input, offset, mask if use_mask else None, weight, grad, sizes,
                                 'x offset mask weight', edge=True)
    return (found['x'], found['weight'], found['offset'], found.get('mask', torch.zeros_like(mask)),
            grad.sum((0, 2, 3)).to(bias.dtype))


def _sizes(options: tuple[Any, ...]) -> tuple[deform.Sizes, bool]:
    stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups, parts, use_mask = options
    return deform.Sizes((stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w), groups,
                        parts), use_mask


FORMS: dict[str, Callable[..., Any]] = {
    'nms': nms, '_cuda_version': lambda: -1,  # built without CUDA
    'roi_align': roi_align, '_roi_align_backward': _roi_align_backward,
    'roi_pool': roi_max, '_roi_pool_backward': _roi_max_backward,
    'ps_roi_align': ps_roi_align, '_ps_roi_align_backward': _ps_roi_align_backward,
    'ps_roi_pool': ps_roi_pool, '_ps_roi_pool_backward': _ps_roi_pool_backward,
    'deform_conv2d': deform_conv2d, '_deform_conv2d_backward': _deform_conv2d_backward,
}
