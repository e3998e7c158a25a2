"""Position-sensitive pooling: each bin of a region has channels of its own."""
import torch
from torch import Tensor

from .precision import compute_dtype
from .roi_align import count_up, make_grid, sample, weighted_sums
from .roi_pool import check_images, edges, rounded_corners


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


def forward(input: Tensor, rois: Tensor, size: tuple[int, int], scale: float,
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
    return sums.view(-1, *size, sums.shape[1]).permute(0, 3, 1, 2).to(input.dtype), mapping


def backward(grad: Tensor, rois: Tensor, shape: tuple[int, ...], size: tuple[int, int],
             scale: float, sampling_ratio: int | None) -> Tensor:
    """The gradient by the input of a shape; that of what :func:`forward` computes, where
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
