"""RoI pooling: the largest cell of every bin, as mmcv and torchvision have it, and pooling whose
bins have channels of their own."""
from typing import NamedTuple

import torch
from torch import Tensor

from .precision import compute_dtype
from .roi_align import count_up, make_grid, sample, weighted_sums

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


def rounded_corners(rois: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Corners x, y in whole cells, halves away from zero as in C, (K, 2) each."""
    corners = rois[:, 1:] * scale
    corners = corners.abs().add(0.5).floor() * corners.sign()
    return corners[:, :2], corners[:, 2:]


def bins_of(rois: Tensor, scale: float, size: tuple[int, int], hw: tuple[int, int], *,
            rounded: bool) -> Bins:
    """The part of the bins that lies on the map.

    Args:
        rounded: as torchvision's kernel, whose corners are whole cells and whose sides are one at
            least; else as mmcv's, where regions hold their last pixel and have real sides, and
            those without area hold nothing.
    """
    if rounded:
        start, end = rounded_corners(rois, scale)
        extent = (end - start + 1).clamp(min=1)
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


def align_cells(rois: Tensor, shape: tuple[int, ...], size: tuple[int, int], scale: float,
                sampling_ratio: int) -> tuple[Tensor, Tensor, Tensor]:
    """Cells of the table of :func:`table_of`, their weights, and how many of them each bin has."""
    grid = make_grid(rois, shape[0], size, scale, sampling_ratio, aligned=True)
    found = sample(grid, size, shape[2], shape[3])
    bins, cells = size[0] * size[1], shape[2] * shape[3]
    run = count_up(found.per_bin)[0]
    image, bin_ = grid.image[run // bins], run % bins
    rows = found.pixels + ((image * (bins - 1) + bin_) * cells)[:, None]
    weights = found.weights / found.per_bin[run][:, None]
    return rows.flatten(), weights.flatten(), found.per_bin * 4


def pool_cells(rois: Tensor, shape: tuple[int, ...], size: tuple[int, int], scale: float
               ) -> tuple[Tensor, Tensor, Tensor]:
    """The same for means of whole cells; the last row and column of the map are never read, as in
    torchvision's kernel."""
    check_images(rois, shape[0])
    start, end = rounded_corners(rois, scale)
    extent = (end - start).clamp(min=1)
    sides = []
    for axis, count, side in ((1, size[0], shape[2]), (0, size[1], shape[3])):
        low, high = edges(start[:, axis], extent[:, axis], count, whole=True)
        sides.append((low.clamp(0, side - 1), high.clamp(0, side - 1)))
    (top, bottom), (left, right) = sides
    height = (bottom - top).clamp(min=0)[:, :, None].expand(-1, -1, size[1]).flatten()
    width = (right - left).clamp(min=0)[:, None].expand(-1, size[0], -1).flatten()
    run, place = count_up(height * width)
    roi, bin_ = run // (size[0] * size[1]), run % (size[0] * size[1])
    y = top[roi, bin_ // size[1]] + place // width[run]
    x = left[roi, bin_ % size[1]] + place % width[run]
    plane = rois[roi, 0].long() * (size[0] * size[1]) + bin_
    rows = (plane * shape[2] + y) * shape[3] + x
    return rows, 1 / (height * width)[run].to(rois.dtype), height * width


def table_of(input: Tensor, bins: int) -> Tensor:
    """(N * bins * H * W, C / bins): the cells of the channels of each bin."""
    return input.unflatten(1, (-1, bins)).permute(0, 2, 3, 4, 1).reshape(
        -1, input.shape[1] // bins)


def ps_forward(input: Tensor, rois: Tensor, size: tuple[int, int], scale: float,
               sampling_ratio: int | None) -> tuple[Tensor, Tensor]:
    """R-FCN's pooling (Dai et al., NeurIPS 2016, equation 1), or with bilinear samples.

    Args:
        input: (N, C * bins, H, W); channel c * bins + b is channel c of bin b.
        rois: (K, 5) as image index, x1, y1, x2, y2, in units of the image.
        sampling_ratio: samples a bin and axis, 0 or less for about one a pixel; None takes the mean
            of whole cells.

    Returns:
        (K, C, height, width), and the channel that each was read from, int32.
    """
    bins = size[0] * size[1]
    if input.shape[1] % bins:
        raise ValueError(f'input must have a multiple of {bins} channels, one for each bin, got '
                         f'{input.shape[1]}')
    dtype = compute_dtype(input)
    channels = torch.arange(input.shape[1], dtype=torch.int32, device=input.device)
    mapping = channels.view(1, -1, *size).repeat(len(rois), 1, 1, 1)
    if not len(rois):
        return input.new_zeros(mapping.shape), mapping
    cells = cells_of(rois.to(dtype), input.shape, size, scale, sampling_ratio)
    sums = weighted_sums(table_of(input.to(dtype), bins), *cells)
    found = sums.view(-1, *size, sums.shape[1]).permute(0, 3, 1, 2)
    return found.to(input.dtype).contiguous(), mapping


def ps_backward(grad: Tensor, rois: Tensor, shape: tuple[int, ...], size: tuple[int, int],
                scale: float, sampling_ratio: int | None) -> Tensor:
    """The gradient by the input of a shape; that of what :func:`ps_forward` computes, where
    torchvision's kernel for whole cells clips other cells backwards than forwards."""
    dtype, bins = compute_dtype(grad), size[0] * size[1]
    table = grad.new_zeros(shape[0] * bins * shape[2] * shape[3], shape[1] // bins, dtype=dtype)
    if len(rois):
        rows, weights, lengths = cells_of(rois.to(dtype), shape, size, scale, sampling_ratio)
        given = grad.to(dtype).permute(0, 2, 3, 1).reshape(-1, table.shape[1])
        table.index_add_(0, rows, given[count_up(lengths)[0]] * weights[:, None])
    found = table.view(shape[0], bins, shape[2], shape[3], -1).permute(0, 4, 1, 2, 3)
    return found.reshape(shape).to(grad.dtype)


def cells_of(rois: Tensor, shape: tuple[int, ...], size: tuple[int, int], scale: float,
             sampling_ratio: int | None) -> tuple[Tensor, Tensor, Tensor]:
    if sampling_ratio is None:
        return pool_cells(rois, shape, size, scale)
    return align_cells(rois, shape, size, scale, sampling_ratio)
