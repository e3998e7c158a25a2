"""CARAFE: upsampling by kernels that are predicted for every place."""
from collections.abc import Iterator

import torch.nn.functional as F
from torch import Tensor

from .precision import compute_dtype


def _taps(masks: Tensor, kernel_size: int, group_size: int, scale_factor: int
          ) -> Iterator[tuple[slice, slice, Tensor]]:
    """For every tap: the rows and columns of the padded map that it reads, and its weights
    (N, groups, 1, H, scale, W, scale)."""
    number, _, height, width = masks.shape
    weights = masks.view(number, group_size, kernel_size, kernel_size, height // scale_factor,
                         scale_factor, width // scale_factor, scale_factor)
    for i in range(kernel_size):
        for j in range(kernel_size):
            yield (slice(i, i + height // scale_factor), slice(j, j + width // scale_factor),
                   weights[:, :, None, i, j])


def _padded(features: Tensor, kernel_size: int, group_size: int) -> Tensor:
    """(N, groups, C / groups, H + kernel_size - 1, W + kernel_size - 1), zero around the map."""
    dtype, reach = compute_dtype(features), (kernel_size - 1) // 2
    return F.pad(features.to(dtype), (reach,) * 4).unflatten(1, (group_size, -1))


def carafe_forward(features: Tensor, masks: Tensor, rfeatures: Tensor, routput: Tensor,
                   rmasks: Tensor, output: Tensor, kernel_size: int, group_size: int,
                   scale_factor: int) -> None:
    """Writes sums of the cells around each place, weighted by its own kernel.

    CARAFE (Wang et al., ICCV 2019), equation 2.

    Args:
        features: (N, C, H, W); zero outside.
        masks: (N, group_size * kernel_size^2, H * scale_factor, W * scale_factor).
        rfeatures: becomes a copy of the features, for the backward pass. (The compiled kernel keeps
            them in another order there, and uses routput and rmasks.)
        output: (N, C, H * scale_factor, W * scale_factor), overwritten.
        kernel_size: odd; the kernel of a place lies around the cell that it is part of.
        group_size: parts of the channels with kernels of their own.
    """
    rfeatures.copy_(features)
    x, masks = _padded(features, kernel_size, group_size), masks.to(compute_dtype(features))
    total = x.new_zeros(output.shape).view(
        *x.shape[:3], features.shape[2], scale_factor, features.shape[3], scale_factor)
    for rows, cols, weight in _taps(masks.contiguous(), kernel_size, group_size, scale_factor):
        total.addcmul_(x[..., rows, cols][..., None, :, None], weight)
    output.copy_(total.view(output.shape))


def carafe_backward(grad_output: Tensor, rfeatures: Tensor, masks: Tensor, rgrad_output: Tensor,
                    rgrad_input_hs: Tensor, rgrad_input: Tensor, rgrad_masks: Tensor,
                    grad_input: Tensor, grad_masks: Tensor, kernel_size: int, group_size: int,
                    scale_factor: int) -> None:
    """Writes the gradients of the map and of the kernels."""
    x, masks = _padded(rfeatures, kernel_size, group_size), masks.to(compute_dtype(rfeatures))
    height, width = rfeatures.shape[2:]
    grad = grad_output.to(x.dtype).reshape(*x.shape[:3], height, scale_factor, width, scale_factor)
    total, of_masks = x.new_zeros(x.shape), masks.new_zeros(masks.shape)
    own = _taps(of_masks, kernel_size, group_size, scale_factor)
    for (rows, cols, weight), (_, _, of_weight) in zip(
            _taps(masks.contiguous(), kernel_size, group_size, scale_factor), own, strict=True):
        total[..., rows, cols] += (grad * weight).sum((4, 6))
        of_weight[:] = (grad * x[..., rows, cols][..., None, :, None]).sum(2, keepdim=True)
    reach = (kernel_size - 1) // 2
    inner = total[..., reach:reach + height, reach:reach + width]
    grad_input.copy_(inner.reshape(grad_input.shape))
    grad_masks.copy_(of_masks)
