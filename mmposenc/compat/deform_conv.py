"""Deformable convolution, where mmcv has no compiled operator."""
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .deterministic import deterministic_forms
from .torchvision_ops import has_kernel


def deform_conv(x: Tensor, offset: Tensor, weight: Tensor, *, stride: tuple[int, int],
                padding: tuple[int, int], dilation: tuple[int, int], groups: int,
                deform_groups: int) -> Tensor:
    """A convolution whose taps read the map a learned step away (Dai et al., ICCV 2017, Eq. 2).

    Args:
        x: (B, C, H, W); zero outside, and between cells read bilinearly.
        offset: (B, deform_groups * kh * kw * 2, H', W'), for every tap a step in rows and one in
            columns, in cells.
        weight: (C', C / groups, kh, kw).
        stride, padding, dilation: rows, then columns.
        groups: of the convolution.
        deform_groups: parts of the channels that share their steps.

    Returns:
        (B, C', H', W').
    """
    if has_kernel('deform_conv2d', x) and not torch.are_deterministic_algorithms_enabled():
        no_mask, no_bias = x.new_zeros(len(x), 1), x.new_zeros(len(weight))
        return torch.ops.torchvision.deform_conv2d(  # type: ignore[no-any-return]
            x, weight, offset, no_mask, no_bias, *stride, *padding, *dilation, groups,
            deform_groups, False)
    batch, channels, height, width = x.shape
    rows, cols = offset.shape[2:]
    taps = weight.shape[2] * weight.shape[3]
    steps = offset.view(batch * deform_groups, taps, 2, rows, cols)
    starts = [(torch.arange(taken, device=x.device) * dilation[axis])[:, None]
              + torch.arange(cells, device=x.device) * stride[axis] - padding[axis]
              for axis, (taken, cells) in enumerate(zip(weight.shape[2:], (rows, cols),
                                                        strict=True))]
    shape = (*weight.shape[2:], rows, cols)
    row = steps[:, :, 0] + starts[0][:, None, :, None].expand(shape).reshape(taps, rows, cols)
    col = steps[:, :, 1] + starts[1][None, :, None].expand(shape).reshape(taps, rows, cols)
    # grid_sample counts from -1 to 1 between the edges of the map.
    grid = torch.stack(((2 * col + 1) / width - 1, (2 * row + 1) / height - 1), -1)
    read = F.grid_sample(x.reshape(batch * deform_groups, -1, height, width),
                         grid.view(-1, taps * rows, cols, 2), align_corners=False)
    columns = read.reshape(batch, groups, channels // groups * taps, rows * cols)
    kernels = weight.reshape(groups, -1, channels // groups * taps)
    return (kernels @ columns).view(batch, -1, rows, cols)


def deform_conv_forward(x: Tensor, weight: Tensor, offset: Tensor, output: Tensor, columns: Tensor,
                        ones: Tensor, **sizes: int) -> None:
    """Writes the convolution into ``output``. The compiled kernel's buffers are not needed."""
    output.copy_(deform_conv(x, offset, weight, **_arguments(sizes)))


def deform_conv_backward_input(x: Tensor, offset: Tensor, grad_output: Tensor, grad_input: Tensor,
                               grad_offset: Tensor, weight: Tensor, columns: Tensor, **sizes: int
                               ) -> None:
    """Writes the gradients of the map and of the steps."""
    image, steps = (each.detach().requires_grad_() for each in (x, offset))
    with torch.enable_grad(), deterministic_forms():
        output = deform_conv(image, steps, weight.detach(), **_arguments(sizes))
    grads = torch.autograd.grad(output, (image, steps), grad_output)
    for buffer, grad in zip((grad_input, grad_offset), grads, strict=True):
        buffer.copy_(grad)


def deform_conv_backward_parameters(x: Tensor, offset: Tensor, grad_output: Tensor,
                                    grad_weight: Tensor, columns: Tensor, ones: Tensor,
                                    **sizes: int) -> None:
    """Adds ``scale`` times the gradient of the weight."""
    scale = sizes.pop('scale')
    kernels = torch.zeros_like(grad_weight).requires_grad_()
    with torch.enable_grad(), deterministic_forms():
        output = deform_conv(x.detach(), offset.detach(), kernels, **_arguments(sizes))
    grad, = torch.autograd.grad(output, kernels, grad_output)
    grad_weight.add_(grad, alpha=scale)


def _arguments(sizes: dict[str, int]) -> dict[str, Any]:
    """The kernel's names to ours; the side of its taps is the weight's, and its steps of the batch
    need no choice here."""
    return dict(stride=(sizes['dH'], sizes['dW']), padding=(sizes['padH'], sizes['padW']),
                dilation=(sizes['dilationH'], sizes['dilationW']), groups=sizes['group'],
                deform_groups=sizes['deformable_group'])
