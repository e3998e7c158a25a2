"""Multi-scale deformable attention (Deformable DETR, ICLR 2021, equation 3) in PyTorch.

mmcv has the form, and uses it on the CPU by itself; on a GPU it asks for the operator, because its
form reads every size of every level from the device, one by one. Here they are read once.
"""
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from ..functional.grids import stored
from ..functional.tracing import is_exporting


def host_shapes(spatial_shapes: Tensor) -> list[tuple[int, int]]:
    """The levels' (H, W) as Python numbers. They are read from the device once for each tensor and
    then stored on it, because all modules of a model share that tensor.

    Args:
        spatial_shapes: (levels, 2), not written to later.
    """
    shapes: list[tuple[int, int]] | None = getattr(spatial_shapes, 'host_shapes', None)
    if shapes is None:
        shapes = [(height, width) for height, width in spatial_shapes.tolist()]
        note_host_shapes(spatial_shapes, shapes)
    return shapes


def note_host_shapes(spatial_shapes: Tensor, shapes: list[tuple[int, int]]) -> Tensor:
    """Store on the tensor what :func:`host_shapes` returns, if the numbers are known already."""
    spatial_shapes.host_shapes = shapes  # type: ignore[attr-defined]
    return spatial_shapes


def level_sizes(shapes: Sequence[tuple[int, int]], like: Tensor) -> tuple[Tensor, Tensor]:
    """The sizes and starts of levels as mmcv's attention takes them.

    Args:
        shapes: (H, W) of each level, numbers or, in an export, symbols.
        like: a tensor on the device that is wanted.

    Returns:
        ``spatial_shapes`` (levels, 2) with the numbers noted on it, and ``level_start_index``
        (levels,), both long; stored between calls.
    """
    starts = [*accumulate((height * width for height, width in shapes[:-1]), initial=0)]
    flat = [side for shape in shapes for side in shape] + starts

    def make() -> tuple[Tensor, Tensor]:
        if is_exporting():  # torch.tensor would turn symbols into the numbers of the example.
            sizes = torch.stack([like.new_full((), each, dtype=torch.long) for each in flat])
        else:
            sizes = torch.tensor(flat, device=like.device)
        spatial_shapes = sizes[:-len(starts)].view(-1, 2)
        return note_host_shapes(spatial_shapes, list(shapes)), sizes[-len(starts):]
    return stored(('levels', *shapes), make, like.device)


def ms_deform_attn_forward(value: Tensor, spatial_shapes: Tensor, level_start_index: Tensor,
                           sampling_locations: Tensor, attention_weights: Tensor,
                           im2col_step: int) -> Tensor:
    """mmcv's form in PyTorch, with the sizes of the levels as numbers.

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
    return multi_scale_deformable_attn_pytorch(
        value, host_shapes(spatial_shapes), sampling_locations, attention_weights)


def ms_deform_attn_backward(value: Tensor, spatial_shapes: Tensor, level_start_index: Tensor,
                            sampling_locations: Tensor, attention_weights: Tensor,
                            grad_output: Tensor, grad_value: Tensor, grad_sampling_loc: Tensor,
                            grad_attn_weight: Tensor, im2col_step: int) -> None:
    """Write the gradients of value, locations and weights into the last three tensors. The forward
    pass is computed again, so that sampled values need not be stored.
    """
    inputs = [tensor.detach().requires_grad_()
              for tensor in (value, sampling_locations, attention_weights)]
    with torch.enable_grad():
        output = ms_deform_attn_forward(inputs[0], spatial_shapes, level_start_index, inputs[1],
                                        inputs[2], im2col_step)
    grads = torch.autograd.grad(output, inputs, grad_output)
    for buffer, grad in zip((grad_value, grad_sampling_loc, grad_attn_weight), grads, strict=True):
        buffer.copy_(grad)
