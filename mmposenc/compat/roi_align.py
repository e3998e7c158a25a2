"""RoIAlign: features of a region, sampled bilinearly on a regular grid.

Every output bin is a weighted sum of pixels, whatever its number of samples; embedding_bag adds
such sums up in one pass, without a tensor of all the samples."""
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .missing import build_command_text
from .precision import compute_dtype, has_kernel

# The largest number of samples in one pass, which limits the index tensors to about 100 MB.
MAX_SAMPLES = 1 << 20


class Grid(NamedTuple):
    """The points at which the bins of K regions are sampled; the last axis is y, x."""
    image: Tensor  # (K,) long
    start: Tensor  # (K, 2)
    bin_size: Tensor  # (K, 2)
    samples: Tensor  # (K, 2) long, the number of samples in a bin


class Taps(NamedTuple):
    """The samples along one axis: two pixels and their weights for each; both weights are zero
    outside of the map."""
    low: Tensor
    high: Tensor
    low_weight: Tensor
    high_weight: Tensor


class Samples(NamedTuple):
    """All samples of some regions, bin by bin: for each the four pixels and their weights."""
    pixels: Tensor  # (S, 4) long, rows of the (N * H * W, C) table
    weights: Tensor  # (S, 4)
    per_bin: Tensor  # (K * bins,) long


def make_grid(rois: Tensor, num_images: int, size: tuple[int, int], spatial_scale: float,
              sampling_ratio: int, aligned: bool) -> Grid:
    """Compute the sampling grid of every region, after a check of the regions."""
    image = rois[:, 0].long()
    if bool(((image < 0) | (image >= num_images)).any()):
        raise ValueError(f'rois[:, 0] must be image indices in [0, {num_images}), got '
                         f'{int(image.min())} to {int(image.max())}')
    corners = rois[:, 1:] * spatial_scale - (0.5 if aligned else 0.0)
    start, end = corners[:, :2].flip(1), corners[:, 2:].flip(1)
    extent = end - start
    if not aligned:
        extent = extent.clamp(min=1)  # The first version of RoIAlign does so.
    elif not bool((extent >= 0).all()):
        bad = rois[~(extent >= 0).all(1)][0].tolist()
        raise ValueError(f'rois must have x2 >= x1 and y2 >= y1 and no NaN, got {bad}')
    bin_size = torch.stack([extent[:, axis] / side for axis, side in enumerate(size)], 1)
    if sampling_ratio > 0:
        samples = torch.full_like(extent, sampling_ratio, dtype=torch.long)
    # About one sample for each pixel. The compiled kernel rounds up in float32, so this does too.
    else:
        samples = bin_size.float().ceil().long()
    return Grid(image, start, bin_size, samples)


def interpolation_taps(coordinate: Tensor, size: int) -> Taps:
    """Where to interpolate linearly at coordinates in [-1, size], clamped to the map; outside of it
    weights are zero."""
    inside = (coordinate >= -1) & (coordinate <= size)
    clamped = coordinate.clamp(0, size - 1)
    low = clamped.floor()
    fraction = clamped - low
    zero = torch.zeros_like(fraction)
    low_index = torch.where(inside, low, zero).long()
    return Taps(low_index, (low_index + 1).clamp(max=size - 1),
                torch.where(inside, 1 - fraction, zero), torch.where(inside, fraction, zero))


def count_up(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """For consecutive runs of these lengths: the number of each element's run, and its place in it.
    """
    run = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), lengths)
    number = torch.arange(len(run), device=lengths.device)
    return run, number - (lengths.cumsum(0) - lengths)[run]


def list_samples(grid: Grid, size: tuple[int, int], height: int, width: int) -> Samples:
    """List the samples of all bins of all regions."""
    bins = size[0] * size[1]
    per_bin = grid.samples.prod(1).repeat_interleave(bins)
    run, number = count_up(per_bin)
    roi, cell = run // bins, run % bins
    samples, bin_size = grid.samples[roi], grid.bin_size[roi]
    inner = torch.stack([number // samples[:, 1], number % samples[:, 1]], 1)
    outer = torch.stack([cell // size[1], cell % size[1]], 1)
    # In the order of operations of mmcv's kernel, so that a sample that lies exactly on the edge
    # stays inside.
    at = grid.start[roi] + outer * bin_size + (inner + 0.5) * bin_size / samples
    y, x = interpolation_taps(at[:, 0], height), interpolation_taps(at[:, 1], width)
    first = grid.image[roi] * (height * width)
    pixels = torch.stack([row * width + column + first
                          for row in (y.low, y.high) for column in (x.low, x.high)], 1)
    weights = torch.stack([row * column for row in (y.low_weight, y.high_weight)
                           for column in (x.low_weight, x.high_weight)], 1)
    return Samples(pixels, weights, per_bin)


def chunks_of_regions(grid: Grid, bins: int) -> list[slice]:
    """Group consecutive regions so that a group has at most MAX_SAMPLES samples, but at least one
    region."""
    totals = (grid.samples.prod(1) * bins).cumsum(0).tolist()
    pieces, first, done = [], 0, 0
    for i, total in enumerate(totals):
        if total - done > MAX_SAMPLES and i > first:
            pieces.append(slice(first, i))
            first, done = i, totals[i - 1]
    return [*pieces, slice(first, len(totals))]


def weighted_sums(table: Tensor, rows: Tensor, weights: Tensor, lengths: Tensor) -> Tensor:
    """Add up weighted rows of a table: ``lengths[i]`` of them make row i of the result."""
    offsets = F.pad(lengths.cumsum(0), (1, 0))
    return F.embedding_bag(rows, table, offsets, mode='sum', per_sample_weights=weights,
                           include_last_offset=True)


def aligned_features(input: Tensor, rois: Tensor, size: tuple[int, int], spatial_scale: float,
                     sampling_ratio: int, aligned: bool) -> Tensor:
    """The features of every region (K, C, *size), as :func:`roi_align_forward` computes them."""
    num_images, channels, height, width = input.shape
    output, dtype = input.new_empty(len(rois), channels, *size), compute_dtype(input)
    if not len(rois):
        return output
    grid = make_grid(rois.to(dtype), num_images, size, spatial_scale, sampling_ratio, aligned)
    table = input.to(dtype).permute(0, 2, 3, 1).reshape(-1, channels)
    for piece in chunks_of_regions(grid, size[0] * size[1]):
        samples = list_samples(Grid(*(each[piece] for each in grid)), size, height, width)
        sums = weighted_sums(table, samples.pixels.flatten(), samples.weights.flatten(),
                             samples.per_bin * 4)
        # Regions without samples have the mean zero.
        means = sums / samples.per_bin.clamp(min=1)[:, None]
        output[piece] = means.view(-1, *size, channels).permute(0, 3, 1, 2).to(output.dtype)
    return output


def input_gradient(grad_output: Tensor, rois: Tensor, shape: Sequence[int], spatial_scale: float,
                   sampling_ratio: int, aligned: bool) -> Tensor:
    """The gradient of the features (N, C, H, W) of ``shape``. Their values do not matter, because
    averages are linear."""
    if not len(rois):
        return grad_output.new_zeros(*shape)
    with torch.enable_grad():
        input = grad_output.new_zeros(*shape, requires_grad=True)
        output = aligned_features(input, rois, (grad_output.size(2), grad_output.size(3)),
                                  spatial_scale, sampling_ratio, aligned)
    return torch.autograd.grad(output, input, grad_output)[0]


def roi_align_forward(input: Tensor, rois: Tensor, output: Tensor, argmax_y: Tensor,
                      argmax_x: Tensor, aligned_height: int, aligned_width: int,
                      spatial_scale: float, sampling_ratio: int, pool_mode: int,
                      aligned: bool) -> None:
    """Writes the pooled features of every region into ``output``.

    Mask R-CNN (ICCV 2017), section 3; ``aligned`` as in Detectron2.

    Args:
        input: (N, C, H, W).
        rois: (K, 5) as image index, x1, y1, x2, y2, in units of the image.
        output: (K, C, aligned_height, aligned_width), overwritten.
        argmax_y, argmax_x: unused.
        spatial_scale: size of the map over size of the image.
        sampling_ratio: samples a bin and axis; 0 takes about one a pixel.
        pool_mode: 1, the average of a bin's samples.
        aligned: shift by half a pixel, so that pixel centres lie at .5.

    Raises:
        ValueError: for a region of negative size (aligned) or of an image that is not there.
        NotImplementedError: for pool_mode 0, the maximum, which no model of mmdet takes.

    The same as mmcv's CPU kernel. On an accelerator torchvision's kernel is taken for averages
    where there is one: it waits for nothing, and looks at no region.
    """
    if pool_mode != 1:
        raise NotImplementedError(
            "RoIAlign with pool_mode='max' is not available without mmcv's compiled operators; use "
            f"pool_mode='avg', or build mmcv:\n    {build_command_text()}")
    if has_kernel('roi_align', input):
        output.copy_(torch.ops.torchvision.roi_align(
            input, rois.to(input.dtype), spatial_scale, aligned_height, aligned_width,
            sampling_ratio, aligned))
        return
    output.copy_(aligned_features(input, rois, (aligned_height, aligned_width), spatial_scale,
                                  sampling_ratio, aligned))


def roi_align_backward(grad_output: Tensor, rois: Tensor, argmax_y: Tensor, argmax_x: Tensor,
                       grad_input: Tensor, aligned_height: int, aligned_width: int,
                       spatial_scale: float, sampling_ratio: int, pool_mode: int,
                       aligned: bool) -> None:
    """Add the gradient of the features to ``grad_input`` (N, C, H, W); arguments are those of the
    forward pass."""
    if has_kernel('_roi_align_backward', grad_output):
        grad_input.add_(torch.ops.torchvision._roi_align_backward(
            grad_output, rois.to(grad_output.dtype), spatial_scale, aligned_height, aligned_width,
            *grad_input.shape, sampling_ratio, aligned))
        return
    grad_input.add_(input_gradient(grad_output, rois, grad_input.shape, spatial_scale,
                                   sampling_ratio, aligned))
