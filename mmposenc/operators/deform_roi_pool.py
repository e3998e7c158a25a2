"""Deformable RoI pooling: RoIAlign whose bins are moved."""
import torch
from torch import Tensor

from .precision import compute_dtype
from .roi_align import Grid, average_backward, chunks, make_grid, means_of_bins, sample


def extents(grid: Grid, size: tuple[int, int]) -> Tensor:
    """Height and width of each region in cells, (K, 2)."""
    return torch.stack([grid.bin_size[:, axis] * size[axis] for axis in (0, 1)], 1)


def moved_grid(rois: Tensor, offset: Tensor, num_images: int, size: tuple[int, int],
               spatial_scale: float, sampling_ratio: int, gamma: float) -> Grid:
    """The grid of RoIAlign (aligned), each bin moved by a share of its region."""
    grid = make_grid(rois, num_images, size, spatial_scale, sampling_ratio, aligned=True)
    if not offset.numel():
        return grid
    bins = size[0] * size[1]
    if offset.shape != (len(rois), 2, *size):
        raise ValueError(f'offset must have shape {(len(rois), 2, *size)}, got '
                         f'{tuple(offset.shape)}')
    moves = gamma * extents(grid, size)[:, None] * offset.view(-1, 2, bins).permute(0, 2, 1).flip(2)
    return grid._replace(start=grid.start + moves)


def deform_roi_pool_forward(input: Tensor, rois: Tensor, offset: Tensor, output: Tensor,
                            pooled_height: int, pooled_width: int, spatial_scale: float,
                            sampling_ratio: int, gamma: float) -> None:
    """Writes the pooled features of every region into ``output``.

    Deformable convolutional networks (Dai et al., ICCV 2017), equation 6, with the samples of
    RoIAlign.

    Args:
        input: (N, C, H, W).
        rois: (K, 5) as image index, x1, y1, x2, y2, in units of the image.
        offset: (K, 2, pooled_height, pooled_width), how far each bin is moved, in x and in y, as a
            share of its region times gamma; or empty.
        output: (K, C, pooled_height, pooled_width), overwritten.
        spatial_scale: size of the map over size of the image.
        sampling_ratio: samples a bin and axis; 0 takes about one a pixel.

    Raises:
        ValueError: for a region of negative size or of an image that is not there.
    """
    if len(rois) == 0:
        return
    size, dtype = (pooled_height, pooled_width), compute_dtype(input)
    grid = moved_grid(rois.to(dtype), offset.to(dtype), len(input), size, spatial_scale,
                      sampling_ratio, gamma)
    table = input.to(dtype).permute(0, 2, 3, 1).reshape(-1, input.shape[1])
    for piece in chunks(grid, size[0] * size[1]):
        samples = sample(Grid(*(field[piece] for field in grid)), size, *input.shape[2:])
        found = means_of_bins(table, samples)
        output[piece] = found.view(-1, *size, input.shape[1]).permute(0, 3, 1, 2).to(output.dtype)


def deform_roi_pool_backward(grad_output: Tensor, input: Tensor, rois: Tensor, offset: Tensor,
                             grad_input: Tensor, grad_offset: Tensor, pooled_height: int,
                             pooled_width: int, spatial_scale: float, sampling_ratio: int,
                             gamma: float) -> None:
    """Adds the gradient by the features and writes that by the moves.

    Derivatives by the moves are those of what is computed; the compiled kernel has others where a
    sample is held at the edge of the map.
    """
    if len(rois) == 0:
        return
    size, dtype = (pooled_height, pooled_width), compute_dtype(input)
    grad = grad_output.to(dtype)
    grid = moved_grid(rois.to(dtype), offset.to(dtype), len(input), size, spatial_scale,
                      sampling_ratio, gamma)
    grad_input.add_(average_backward(grad, grid, input.shape).permute(0, 3, 1, 2))
    if not offset.numel():
        return
    table = input.to(dtype).permute(0, 2, 3, 1).reshape(-1, input.shape[1])
    for piece in chunks(grid, size[0] * size[1]):
        start = grid.start[piece].clone().requires_grad_()
        own = Grid(*(field[piece] for field in grid))._replace(start=start)
        with torch.enable_grad():
            out = means_of_bins(table, sample(own, size, *input.shape[2:]))
        rows = grad[piece].permute(0, 2, 3, 1).reshape(out.shape)
        of_start, = torch.autograd.grad(out, start, rows)
        moved = (of_start * gamma * extents(own, size)[:, None]).flip(2).permute(0, 2, 1)
        grad_offset[piece] = moved.reshape(-1, 2, *size).to(grad_offset.dtype)
