"""RoIAlign: means of the features of a region, sampled bilinearly on a regular grid.

The samples of a region are a grid, and so are the pixels that they read. Each bin of a region is
therefore a weighted sum over rows and over columns, whatever its number of samples.
"""
import torch
from torch import Tensor

from .missing import build_command_text
from .torchvision_ops import has_kernel

#: For a region: the number of its image, the rows and columns of the map that it reads, and their
#: shares in its bins, (bins, rows) and (bins, columns).
Window = tuple[int, slice, slice, Tensor, Tensor]


def axis_shares(start: Tensor, extent: Tensor, bins: int, size: int, sampling_ratio: int) -> Tensor:
    """The share of each row (or column) of a map in each bin of K regions.

    Args:
        start, extent: (K,), first edge and extent of the regions in cells of the map.
        bins: number of bins along this axis.
        size: number of rows (or columns).
        sampling_ratio: number of samples of a bin; 0: about one for each cell.

    Returns:
        (K, bins, size).
    """
    bin_size = extent / bins
    # The compiled kernel rounds up in float32, so this does too.
    samples = (torch.full_like(start, sampling_ratio) if sampling_ratio > 0
               else bin_size.float().ceil().to(start.dtype))[:, None, None]
    number = torch.arange(max(1, int(samples.max())), device=start.device)
    cell = torch.arange(bins, device=start.device)[:, None]
    start, bin_size = start[:, None, None], bin_size[:, None, None]
    # In the order of operations of mmcv's kernel, so that a sample that lies exactly on the edge
    # stays inside.
    at = start + cell * bin_size + (number + 0.5) * bin_size / samples
    inside = (at >= -1) & (at <= size) & (number < samples)
    at = at.clamp(0, size - 1).where(inside, 0)
    low = at.floor()
    shares = at.new_zeros(len(at), bins, size)
    shares.scatter_add_(2, low.long(), inside * (1 - (at - low)))
    shares.scatter_add_(2, (low.long() + 1).clamp(max=size - 1), inside * (at - low))
    return shares / samples.clamp(min=1)  # A region without samples has the mean zero.


def windows(rois: Tensor, shape: torch.Size, size: tuple[int, int], spatial_scale: float,
            sampling_ratio: int, aligned: bool) -> list[Window]:
    """What each region reads of maps of a shape (N, C, H, W), after a check of the regions."""
    image = rois[:, 0].long()
    if bool(((image < 0) | (image >= shape[0])).any()):
        raise ValueError(f'rois[:, 0] must be image indices in [0, {shape[0]}), got '
                         f'{int(image.min())} to {int(image.max())}')
    corners = rois[:, 1:] * spatial_scale - (0.5 if aligned else 0.0)
    start, extent = corners[:, :2], corners[:, 2:] - corners[:, :2]
    if not aligned:
        extent = extent.clamp(min=1)  # The first version of RoIAlign does so.
    elif not bool((extent >= 0).all()):
        bad = rois[~(extent >= 0).all(1)][0].tolist()
        raise ValueError(f'rois must have x2 >= x1 and y2 >= y1 and no NaN, got {bad}')
    axes = []
    for axis, bins, cells in ((1, size[0], shape[2]), (0, size[1], shape[3])):
        shares = axis_shares(start[:, axis], extent[:, axis], bins, cells, sampling_ratio)
        read = (shares > 0).any(1).long()
        first, last = read.argmax(1), (cells - read.flip(1).argmax(1)) * read.amax(1)
        axes.append([(slice(begin, end), each[:, begin:end]) for begin, end, each
                     in zip(first.tolist(), last.tolist(), shares, strict=True)])
    return [(number, rows, columns, row_shares, column_shares)
            for number, (rows, row_shares), (columns, column_shares)
            in zip(image.tolist(), *axes, strict=True)]


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
    size, how = (aligned_height, aligned_width), (sampling_ratio, aligned)
    if has_kernel('roi_align', input):
        output.copy_(torch.ops.torchvision.roi_align(
            input, rois.to(input.dtype), spatial_scale, *size, *how))
    elif len(rois):
        dtype = torch.promote_types(input.dtype, torch.float32)
        # Of channels-last maps, torch would multiply each channel by itself.
        maps = input.to(dtype).contiguous()
        read = windows(rois.to(dtype), input.shape, size, spatial_scale, *how)
        with torch.autocast(input.device.type, enabled=False):
            for region, (image, rows, columns, row_shares, column_shares) in enumerate(read):
                output[region] = row_shares @ maps[image, :, rows, columns] @ column_shares.T


def roi_align_backward(grad_output: Tensor, rois: Tensor, argmax_y: Tensor, argmax_x: Tensor,
                       grad_input: Tensor, aligned_height: int, aligned_width: int,
                       spatial_scale: float, sampling_ratio: int, pool_mode: int,
                       aligned: bool) -> None:
    """Add the gradient of the features to ``grad_input`` (N, C, H, W); arguments are those of the
    forward pass."""
    size, how = (aligned_height, aligned_width), (sampling_ratio, aligned)
    if has_kernel('_roi_align_backward', grad_output):
        grad_input.add_(torch.ops.torchvision._roi_align_backward(
            grad_output, rois.to(grad_output.dtype), spatial_scale, *size, *grad_input.shape, *how))
    elif len(rois):
        dtype = torch.promote_types(grad_input.dtype, torch.float32)
        total = grad_input.new_zeros(grad_input.shape, dtype=dtype)
        read = windows(rois.to(dtype), grad_input.shape, size, spatial_scale, *how)
        with torch.autocast(grad_input.device.type, enabled=False):
            for grad, (image, rows, columns, row_shares, column_shares) in zip(
                    grad_output.to(dtype), read, strict=True):
                total[image, :, rows, columns] += row_shares.T @ grad @ column_shares
        grad_input.add_(total)
