"""RoI pooling: the largest cell of every bin, as mmcv and torchvision have it."""
from typing import NamedTuple

import torch
from torch import Tensor

from .precision import compute_dtype

MAX_VALUES = 1 << 24  # numbers that are compared at once: 64 MiB in float32


class Bins(NamedTuple):
    """First and last + 1 cell of the bins of K regions, whole numbers within the map."""
    image: Tensor  # (K,)
    top: Tensor  # (K, height)
    bottom: Tensor
    left: Tensor  # (K, width)
    right: Tensor


def edges(start: Tensor, extent: Tensor, count: int, *, whole: bool) -> tuple[Tensor, Tensor]:
    """First and last + 1 cell of ``count`` bins along an axis, (K, count) each: rounded before the
    start is added where that is a whole number (torchvision), and else after (mmcv)."""
    at = torch.arange(count + 1, device=start.device) * (extent / count)[:, None]
    low, high, shift = at[:, :-1], at[:, 1:], start[:, None]
    if whole:
        return (low.floor() + shift).long(), (high.ceil() + shift).long()
    return (low + shift).floor().long(), (high + shift).ceil().long()


def bins_of(rois: Tensor, scale: float, size: tuple[int, int], hw: tuple[int, int], *,
            rounded: bool) -> Bins:
    """The part of the bins that lies on the map.

    Args:
        rounded: as torchvision's kernel, whose corners are whole cells and whose sides are one at
            least; else as mmcv's, where regions hold their last pixel and have real sides, and
            those without area hold nothing.
    """
    if rounded:
        corners = rois[:, 1:] * scale
        corners = corners.abs().add(0.5).floor() * corners.sign()  # halves away from zero, as in C
        start = corners[:, :2]
        extent = (corners[:, 2:] - start + 1).clamp(min=1)
    else:
        start = rois[:, 1:3] * scale
        extent = (rois[:, 3:] + 1) * scale - start
    left, right = edges(start[:, 0], extent[:, 0], size[1], whole=rounded)
    top, bottom = edges(start[:, 1], extent[:, 1], size[0], whole=rounded)
    if not rounded:
        bottom = bottom.where((extent > 0).all(1, keepdim=True), top)
    return Bins(rois[:, 0].long(), top.clamp(0, hw[0]), bottom.clamp(0, hw[0]),
                left.clamp(0, hw[1]), right.clamp(0, hw[1]))


def largest(input: Tensor, bins: Bins) -> tuple[Tensor, Tensor]:
    """The largest cell of every bin and its place y * W + x, (K, C, height, width) each; 0 and -1
    for bins without cells. The first of equals; NaN is larger than all."""
    number, height, width = len(bins.image), bins.top.shape[1], bins.left.shape[1]
    channels = input.shape[1]
    table = input.permute(0, 2, 3, 1).reshape(-1, channels)
    rows = (bins.bottom - bins.top).clamp(min=0)[:, :, None].expand(-1, -1, width).flatten()
    cols = (bins.right - bins.left).clamp(min=0)[:, None].expand(-1, height, -1).flatten()
    top, left = bins.top[:, :, None].expand(-1, -1, width), bins.left[:, None].expand(
        -1, height, -1)
    first = top.flatten() * input.shape[3] + left.flatten()
    image = bins.image.repeat_interleave(height * width) * (input.shape[2] * input.shape[3])
    best = table.new_zeros(len(first), channels)
    where = torch.full(best.shape, -1, dtype=torch.int32, device=input.device)
    for sides in torch.stack([rows, cols], 1).unique(dim=0).tolist():
        if min(sides) == 0:
            continue
        inside = (torch.arange(sides[0], device=input.device)[:, None] * input.shape[3]
                  + torch.arange(sides[1], device=input.device)).flatten()
        alike = ((rows == sides[0]) & (cols == sides[1])).nonzero()[:, 0]
        for some in alike.split(max(1, MAX_VALUES // (len(inside) * channels))):
            cells = first[some, None] + inside
            values, index = table[cells + image[some, None]].max(1)
            best[some] = values
            where[some] = cells.gather(1, index).to(torch.int32)
    shape = (number, height, width, channels)
    return best.view(shape).permute(0, 3, 1, 2), where.view(shape).permute(0, 3, 1, 2)


def spread(grad_output: Tensor, image: Tensor, argmax: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Sends each gradient to the cell that was the largest; (N, C, H, W)."""
    _, channels, height, width = shape
    plane = image[:, None] * channels + torch.arange(channels, device=image.device)
    index = plane[:, :, None, None] * (height * width) + argmax.clamp(min=0)
    flat = grad_output.new_zeros(shape[0] * channels * height * width)
    flat.index_add_(0, index.flatten(), (grad_output * (argmax >= 0)).flatten())
    return flat.view(shape)


def check_images(rois: Tensor, number: int) -> None:
    """Raises a ValueError where a region is of an image that is not there, or holds NaN."""
    image = rois[:, 0]
    if not bool(((image >= 0) & (image < number)).all()):
        raise ValueError(f'rois[:, 0] must be image indices in [0, {number}), got '
                         f'{float(image.min())} to {float(image.max())}')
    if not bool(rois.isfinite().all()):
        bad = rois[~rois.isfinite().all(1)][0].tolist()
        raise ValueError(f'rois must be finite, got {bad}')


def roi_pool_forward(input: Tensor, rois: Tensor, output: Tensor, argmax: Tensor,
                     pooled_height: int, pooled_width: int, spatial_scale: float) -> None:
    """Writes the largest value of every bin of every region into ``output``.

    Fast R-CNN (Girshick, ICCV 2015), section 2.1.

    Args:
        input: (N, C, H, W).
        rois: (K, 5) as image index, x1, y1, x2, y2, in units of the image.
        output: (K, C, pooled_height, pooled_width), overwritten.
        argmax: the same, int32, overwritten by the place of each in its map, -1 for none.
        spatial_scale: size of the map over size of the image.

    Raises:
        ValueError: for a region that is not finite or of an image that is not there.

    mmcv's kernel gives the gradient of a region without area to the first cell; here it has none.
    """
    check_images(rois, len(input))
    bins = bins_of(rois.to(compute_dtype(rois)), spatial_scale, (pooled_height, pooled_width),
                   (input.shape[2], input.shape[3]), rounded=False)
    for buffer, found in zip((output, argmax), largest(input, bins), strict=True):
        buffer.copy_(found)


def roi_pool_backward(grad_output: Tensor, rois: Tensor, argmax: Tensor, grad_input: Tensor,
                      pooled_height: int, pooled_width: int, spatial_scale: float) -> None:
    """Adds the gradient by the features to ``grad_input`` (N, C, H, W)."""
    grad_input.add_(spread(grad_output, rois[:, 0].long(), argmax, tuple(grad_input.shape)))
