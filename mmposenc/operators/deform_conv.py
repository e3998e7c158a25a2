"""Deformable convolution, with and without modulation: the taps of a convolution read the map a
learned step away.

The compiled kernels write all values that the taps read into columns, in scalar code. Here
``grid_sample`` reads them, a few images at a time, and nothing of it is kept for the backward pass.
"""
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .deterministic import deterministic_forms
from .precision import compute_dtype, has_kernel

MAX_COLUMNS = 1 << 25  # numbers that the taps of one piece of the batch read: 128 MiB in float32


class Sizes(NamedTuple):
    """The sizes of a convolution; pairs are rows, then columns."""
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    deform_groups: int  # parts of the channels that share their steps

    def out_hw(self, x: Tensor, weight: Tensor) -> tuple[int, int]:
        """(H', W') of the output."""
        height, width = ((side + 2 * pad - dilation * (taps - 1) - 1) // stride + 1
                         for side, taps, stride, pad, dilation in zip(
                             x.shape[2:], weight.shape[2:], self.stride, self.padding,
                             self.dilation, strict=True))
        return height, width


def check(x: Tensor, offset: Tensor, weight: Tensor, mask: Tensor | None, sizes: Sizes) -> None:
    """Raises a ValueError where the tensors cannot belong together."""
    if weight.shape[1] * sizes.groups != x.shape[1] or weight.shape[0] % sizes.groups:
        raise ValueError('weight must have C / groups channels and a number of filters that groups '
                         f'divides, got {tuple(weight.shape)} with groups={sizes.groups} and x of '
                         f'{x.shape[1]} channels')
    if x.shape[1] % sizes.deform_groups:
        raise ValueError(f'deform_groups must divide the channels of x, got {sizes.deform_groups} '
                         f'and {x.shape[1]} channels')
    rows, cols = sizes.out_hw(x, weight)
    if min(rows, cols) < 1:
        raise ValueError(f'x must not be smaller than the kernel, got {tuple(x.shape)} for weight '
                         f'{tuple(weight.shape)}')
    taps = weight.shape[2] * weight.shape[3] * sizes.deform_groups
    for name, tensor, channels in (('offset', offset, 2 * taps), ('mask', mask, taps)):
        if tensor is not None and tensor.shape != (len(x), channels, rows, cols):
            raise ValueError(f'{name} must have shape {(len(x), channels, rows, cols)}, got '
                             f'{tuple(tensor.shape)}')


def places(steps: Tensor, axis: int, side: int, taps: tuple[int, int], sizes: Sizes) -> Tensor:
    """Where the taps read along an axis, in cells: like steps (B * deform_groups, taps, H', W').

    What is outside the map, NaN too, is put two cells before it. One cell before it nothing is read
    either, and as in mmcv's kernel there is no derivative.
    """
    shape = [1, 1, 1, 1]
    shape[axis] = taps[axis]
    start = torch.arange(taps[axis], device=steps.device).view(shape) * sizes.dilation[axis]
    shape = [1, 1, 1, 1]
    shape[2 + axis] = steps.shape[2 + axis]
    cell = torch.arange(shape[2 + axis], device=steps.device).view(shape) * sizes.stride[axis]
    base = (start + cell - sizes.padding[axis]).expand(*taps, *steps.shape[2:])
    at = steps + base.reshape(steps.shape[1:])
    return torch.where((at > -1) & (at < side), at, -2.0)


def read(x: Tensor, row: Tensor, col: Tensor) -> Tensor:
    """The map between its cells, zero around it.

    Args:
        x: (N, C, H, W).
        row, col: (N, taps, H', W'), in cells.

    Returns:
        (N, C, taps, H' * W').
    """
    # grid_sample counts from -1 to 1 between the edges of the map. Sides of powers of two make
    # this exact: steps of zero read the cells themselves, and the derivative to their right.
    height, width = (1 << max(side - 1, 0).bit_length() for side in x.shape[2:])
    x = F.pad(x, (0, width - x.shape[3], 0, height - x.shape[2]))
    grid = torch.stack(((2 * col + 1) / width - 1, (2 * row + 1) / height - 1), -1)
    found = F.grid_sample(x, grid.flatten(1, 2), align_corners=False)
    return found.view(*x.shape[:2], row.shape[1], row.shape[2] * row.shape[3])


def convolve(x: Tensor, offset: Tensor, mask: Tensor | None, weight: Tensor, sizes: Sizes
             ) -> Tensor:
    """The convolution of a few images, whose taps are held at once; see :func:`deform_conv`."""
    rows, cols = sizes.out_hw(x, weight)
    kernel = (weight.shape[2], weight.shape[3])
    taps, parts = kernel[0] * kernel[1], sizes.deform_groups
    if has_kernel('deform_conv2d', x) and not torch.are_deterministic_algorithms_enabled():
        given = x.new_zeros(len(x), 1) if mask is None else mask
        return torch.ops.torchvision.deform_conv2d(  # type: ignore[no-any-return]
            x, weight, offset, given, x.new_zeros(len(weight)), *sizes.stride, *sizes.padding,
            *sizes.dilation, sizes.groups, parts, mask is not None)
    dtype = compute_dtype(x)
    steps = offset.to(dtype).reshape(len(x) * parts, taps, 2, rows, cols)
    row, col = (places(steps[:, :, axis], axis, x.shape[2 + axis], kernel, sizes)
                for axis in (0, 1))
    maps = x.to(dtype).reshape(len(x) * parts, x.shape[1] // parts, *x.shape[2:])
    columns = read(maps, row, col)
    if mask is not None:
        columns = columns * mask.to(dtype).reshape(len(x) * parts, 1, taps, rows * cols)
    kernels = weight.to(dtype).reshape(sizes.groups, len(weight) // sizes.groups, -1)
    columns = columns.view(len(x), sizes.groups, kernels.shape[2], rows * cols)
    return (kernels @ columns).view(len(x), len(weight), rows, cols).to(x.dtype)


def pieces(x: Tensor, weight: Tensor, sizes: Sizes) -> int:
    """How many images are computed at once."""
    each = x.shape[1] * weight[0, 0].numel() * math.prod(sizes.out_hw(x, weight))
    return max(1, MAX_COLUMNS // max(each, 1))


def deform_conv(x: Tensor, offset: Tensor, mask: Tensor | None, weight: Tensor, sizes: Sizes
                ) -> Tensor:
    """A convolution whose taps read the map a learned step away (Dai et al., ICCV 2017, Eq. 2), and
    are weighted where there is a mask (Zhu et al., CVPR 2019, Eq. 1).

    Args:
        x: (B, C, H, W); zero outside, and between cells read bilinearly.
        offset: (B, deform_groups * kh * kw * 2, H', W'), for every tap a step in rows and one in
            columns, in cells.
        mask: (B, deform_groups * kh * kw, H', W') or None.
        weight: (C', C / groups, kh, kw).
        sizes: stride, padding, dilation, groups.

    Returns:
        (B, C', H', W').

    Raises:
        ValueError: for tensors that do not belong together.

    Differs from the compiled kernels in the order of sums; half precision is computed in float32.
    """
    check(x, offset, weight, mask, sizes)
    step = pieces(x, weight, sizes)
    masks: Sequence[Tensor | None] = ([None] * len(x.split(step)) if mask is None
                                      else mask.split(step))
    parts = [convolve(*each, weight, sizes)
             for each in zip(x.split(step), offset.split(step), masks, strict=True)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def gradients(x: Tensor, offset: Tensor, mask: Tensor | None, weight: Tensor, grad: Tensor,
              sizes: Sizes, wanted: str) -> dict[str, Tensor]:
    """The gradients of :func:`deform_conv`, which it is computed again for.

    Args:
        grad: (B, C', H', W'), of the output.
        wanted: names of the tensors, 'x offset mask weight' or fewer.

    Returns:
        Gradients by name.
    """
    check(x, offset, weight, mask, sizes)
    total = {name: torch.zeros_like(tensor) for name, tensor in (
        ('x', x), ('offset', offset), ('mask', mask), ('weight', weight))
        if name in wanted.split() and tensor is not None}
    step = pieces(x, weight, sizes)
    for first in range(0, len(x), step):
        piece = slice(first, first + step)
        given = dict(x=x[piece], offset=offset[piece],
                     mask=None if mask is None else mask[piece], weight=weight)
        leaves = {name: None if tensor is None else tensor.detach().requires_grad_(name in total)
                  for name, tensor in given.items()}
        with torch.enable_grad(), deterministic_forms():
            out = convolve(sizes=sizes, **leaves)  # type: ignore[arg-type]
            found = torch.autograd.grad(out, [leaf for name, leaf in leaves.items()
                                              if leaf is not None and name in total], grad[piece])
        for name, value in zip(total, found, strict=True):
            if name == 'weight':
                total[name] += value
            else:
                total[name][piece] = value
    return total


def deform_conv_forward(x: Tensor, weight: Tensor, offset: Tensor, output: Tensor, columns: Tensor,
                        ones: Tensor, **options: int) -> None:
    """Writes the convolution into ``output``. The compiled kernel's buffers, and its steps of the
    batch, need no choice here."""
    output.copy_(deform_conv(x, offset, None, weight, _sizes(options)))


def deform_conv_backward_input(x: Tensor, offset: Tensor, grad_output: Tensor, grad_input: Tensor,
                               grad_offset: Tensor, weight: Tensor, columns: Tensor, **options: int
                               ) -> None:
    """Writes the gradients of the map and of the steps."""
    found = gradients(x, offset, None, weight, grad_output, _sizes(options), 'x offset')
    grad_input.copy_(found['x'])
    grad_offset.copy_(found['offset'])


def deform_conv_backward_parameters(x: Tensor, offset: Tensor, grad_output: Tensor,
                                    grad_weight: Tensor, columns: Tensor, ones: Tensor,
                                    **options: int) -> None:
    """Adds ``scale`` times the gradient of the weight."""
    found = gradients(x, offset, None, grad_weight, grad_output, _sizes(options), 'weight')
    grad_weight.add_(found['weight'], alpha=options['scale'])


def _sizes(options: dict[str, int]) -> Sizes:
    return Sizes((options['dH'], options['dW']), (options['padH'], options['padW']),
                 (options['dilationH'], options['dilationW']), options['group'],
                 options['deformable_group'])


def first_numbers(tensor: Tensor, like: tuple[int, ...]) -> Tensor:
    """(B, channels, H', W') from the first numbers that each image holds in memory.

    So the modulated kernels read steps and masks that are larger than the output, which mmdet's
    DyHead passes: its weights were trained with it.
    """
    if tensor.shape == like or tensor[:1].numel() < math.prod(like[1:]):
        return tensor  # the check reports too few
    return tensor.flatten(1)[:, :math.prod(like[1:])].reshape(like)


def modulated_deform_conv_forward(x: Tensor, weight: Tensor, bias: Tensor, ones: Tensor,
                                  offset: Tensor, mask: Tensor, output: Tensor, columns: Tensor,
                                  **options: Any) -> None:
    """Writes the modulated convolution into ``output``."""
    sizes, offset_shape, mask_shape = _modulated(x, weight, options)
    output.copy_(deform_conv(x, first_numbers(offset, offset_shape),
                             first_numbers(mask, mask_shape), weight, sizes))
    if options['with_bias']:
        output.add_(bias[:, None, None])


def modulated_deform_conv_backward(x: Tensor, weight: Tensor, bias: Tensor, ones: Tensor,
                                   offset: Tensor, mask: Tensor, columns: Tensor,
                                   grad_input: Tensor, grad_weight: Tensor, grad_bias: Tensor,
                                   grad_offset: Tensor, grad_mask: Tensor, grad_output: Tensor,
                                   **options: Any) -> None:
    """Writes all gradients of the modulated convolution; zero for numbers that it does not read."""
    sizes, offset_shape, mask_shape = _modulated(x, weight, options)
    found = gradients(x, first_numbers(offset, offset_shape), first_numbers(mask, mask_shape),
                      weight, grad_output, sizes, 'x offset mask weight')
    for buffer, name in ((grad_input, 'x'), (grad_offset, 'offset'), (grad_mask, 'mask'),
                         (grad_weight, 'weight')):
        flat = found[name].flatten(1)
        buffer.copy_(F.pad(flat, (0, buffer[:1].numel() - flat.shape[1])).view(buffer.shape))
    if options['with_bias']:
        grad_bias.copy_(grad_output.sum((0, 2, 3)))


def _modulated(x: Tensor, weight: Tensor, options: dict[str, Any]
               ) -> tuple[Sizes, tuple[int, ...], tuple[int, ...]]:
    """The sizes of a modulated convolution, and the shapes of its steps and its mask."""
    sizes = Sizes((options['stride_h'], options['stride_w']), (options['pad_h'], options['pad_w']),
                  (options['dilation_h'], options['dilation_w']), options['group'],
                  options['deformable_group'])
    rows, cols = sizes.out_hw(x, weight)
    taps = weight.shape[2] * weight.shape[3] * sizes.deform_groups
    return sizes, (len(x), 2 * taps, rows, cols), (len(x), taps, rows, cols)
