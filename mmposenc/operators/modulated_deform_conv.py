"""mmcv's modulated deformable convolution, by the one convolution of :mod:`.deform_conv`."""
import math
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from .deform_conv import Sizes, deform_conv, gradients


def first_numbers(tensor: Tensor, like: tuple[int, ...]) -> Tensor:
    """(B, channels, H', W') from the first numbers that each image holds in memory.

    So the modulated kernels read steps and masks that are larger than the output, which mmdet's
    DyHead passes: its weights were trained with it.
    """
    if tensor.shape == like or tensor[:1].numel() < math.prod(like[1:]):
        return tensor  # too few are told by the check
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
