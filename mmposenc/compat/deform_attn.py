"""Multi-scale deformable attention, through mmcv's own PyTorch form.

mmcv uses that form on the CPU by itself; these are for GPUs, where it asks for the operator.
"""
import torch
from torch import Tensor


def ms_deform_attn_forward(value: Tensor, spatial_shapes: Tensor, level_start_index: Tensor,
                           sampling_locations: Tensor, attention_weights: Tensor,
                           im2col_step: int) -> Tensor:
    """Samples ``value`` bilinearly at a few places a query and adds them up by weight.

    Deformable DETR (ICLR 2021), equation 3.

    Args:
        value: (B, keys, heads, head_dims).
        spatial_shapes: (levels, 2) as height, width; level_start_index and im2col_step, which
            the compiled kernel needs, follow from it.
        sampling_locations: (B, queries, heads, levels, points, 2) as x, y in [0, 1].
        attention_weights: (B, queries, heads, levels, points).

    Returns:
        (B, queries, heads * head_dims).
    """
    from mmcv.ops.multi_scale_deform_attn import multi_scale_deformable_attn_pytorch
    return multi_scale_deformable_attn_pytorch(value, spatial_shapes, sampling_locations,
                                               attention_weights)


def ms_deform_attn_backward(value: Tensor, spatial_shapes: Tensor, level_start_index: Tensor,
                            sampling_locations: Tensor, attention_weights: Tensor,
                            grad_output: Tensor, grad_value: Tensor, grad_sampling_loc: Tensor,
                            grad_attn_weight: Tensor, im2col_step: int) -> None:
    """Writes the gradients of value, locations and weights into the last three tensors.

    Runs the forward pass once more, which is what saves keeping the sampled values until here.
    """
    inputs = [tensor.detach().requires_grad_()
              for tensor in (value, sampling_locations, attention_weights)]
    with torch.enable_grad():
        output = ms_deform_attn_forward(inputs[0], spatial_shapes, level_start_index, inputs[1],
                                        inputs[2], im2col_step)
    grads = torch.autograd.grad(output, inputs, grad_output)
    for buffer, grad in zip((grad_value, grad_sampling_loc, grad_attn_weight), grads, strict=True):
        buffer.copy_(grad)
