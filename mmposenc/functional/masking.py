"""Computations that must not see padding, and tokens as maps."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .extents import filled_extents, valid_extents
from .tracing import are_plain, is_compiling


def are_known_equal(sizes: object, others: object) -> bool:
    """Whether sizes are known to be equal, so that nothing has to be done. Always False while a
    model is compiled or exported: the answer would become a condition of the graph, which must be
    for all sizes."""
    return not is_compiling() and bool(sizes == others)


def split_prefix(x: Tensor, num_prefix_tokens: int) -> tuple[Tensor | None, Tensor]:
    """Split (B, P + L, C) into the prefix tokens (None when P is 0) and the grid tokens."""
    if num_prefix_tokens == 0:
        return None, x
    return x[:, :num_prefix_tokens], x[:, num_prefix_tokens:]


def join_prefix(prefix: Tensor | None, tokens: Tensor) -> Tensor:
    """Put prefix tokens before the others, undoing :func:`split_prefix`."""
    return tokens if prefix is None else torch.cat((prefix, tokens), dim=1)


def tokens_to_map(tokens: Tensor, hw_shape: tuple[int, ...]) -> Tensor:
    """View tokens (B, H*W, C) as a map (B, C, H, W) without a copy; so with one axis, or three.

    The result is channels_last: ``transpose(1, 2).view(B, C, H, W)`` names the same numbers but
    loses that layout at batch 1, where convolutions then take a path up to ten times slower.
    """
    return tokens.view(tokens.shape[0], *hw_shape, tokens.shape[-1]).movedim(-1, 1)


def map_to_tokens(feature_map: Tensor) -> Tensor:
    """Turn a map (B, C, H, W), or one of other axes, into tokens (B, H*W, C); no copy when it is
    channels_last."""
    return feature_map.movedim(1, -1).flatten(1, -2)


def masked_batch_norm(norm: nn.Module, x: Tensor, padding_mask: Tensor | None) -> Tensor:
    """Apply a BatchNorm module to a map with its statistics taken over valid cells only.

    Args:
        norm: BatchNorm2d or SyncBatchNorm; a LayerNorm, which has no statistics of several cells,
            sees the map as it is.
        x: (B, C, H, W).
        padding_mask: (B, H, W) bool, True = padding, to the right and below, or None.

    Returns:
        (B, C, H, W); padded cells are zero while training with a mask.
    """
    if padding_mask is None or not norm.training or isinstance(norm, nn.LayerNorm):
        return norm(x)
    if isinstance(norm, nn.BatchNorm2d) and are_plain(norm):
        momentum = _count_batch_and_share(norm)
        return weighted_batch_norm(x, padding_mask, norm.running_mean, norm.running_var,
                                   norm.weight, norm.bias, momentum, norm.eps)
    # Other norms, such as SyncBatchNorm, gather what all processes hold in their own way: they get
    # the valid cells alone, as one column. It is made contiguous, because torch 2.13's backward
    # pass for a transposed view is wrong on a CPU.
    valid = ~padding_mask
    cells = x.movedim(1, -1)[valid].t().contiguous()
    normed = norm(cells[None, ..., None])[0, ..., 0]
    out = normed.new_zeros(*valid.shape, x.shape[1])
    out[valid] = normed.t()
    return out.movedim(-1, 1)


@torch.no_grad()
def _count_batch_and_share(norm: nn.BatchNorm2d) -> float | Tensor:
    """Count a batch as the norm itself does, and return the share that its statistics get in the
    running ones."""
    if norm.num_batches_tracked is None:
        return 0.0 if norm.momentum is None else norm.momentum
    norm.num_batches_tracked.add_(1)
    if norm.momentum is None:  # Without a momentum, running statistics are the mean of all batches.
        assert norm.running_mean is not None
        return norm.num_batches_tracked.to(norm.running_mean.dtype) ** -1
    return norm.momentum


def weighted_batch_norm(x: Tensor, padding_mask: Tensor, running_mean: Tensor | None,
                        running_var: Tensor | None, weight: Tensor | None, bias: Tensor | None,
                        momentum: float | Tensor, eps: float) -> Tensor:
    """BatchNorm while training by sums with weights 0 and 1: picking the valid cells would make a
    GPU's host wait for their number.

    Args:
        x: (B, C, H, W).
        padding_mask: (B, H, W) bool, True = padding.
        running_mean, running_var: (C,), moved in place towards those of the batch by ``momentum``,
            or None.
        weight, bias: (C,) or None.
        momentum: share of the new statistics.
        eps: added to the variance.

    Returns:
        (B, C, H, W); padded cells are zero.
    """
    hidden = padding_mask[:, None]
    cleared = x.float().masked_fill(hidden, 0) if x.dtype in (torch.float16, torch.bfloat16) else (
        x.masked_fill(hidden, 0))
    count = (~padding_mask).sum().to(cleared.dtype)  # Quotients of whole numbers would be float32.
    mean = cleared.sum((0, 2, 3)) / count
    centred = (cleared - mean[:, None, None]).masked_fill(hidden, 0)
    variance = centred.square().sum((0, 2, 3)) / count
    unbiased = variance.detach() * (count / (count - 1).clamp(min=1))
    with torch.no_grad():
        for running, new in ((running_mean, mean.detach()), (running_var, unbiased)):
            if running is not None:
                running.lerp_(new.to(running.dtype), momentum)
    scale = (variance + eps).rsqrt()
    out = centred * (scale if weight is None else scale * weight)[:, None, None]
    if bias is not None:
        out = (out + bias[:, None, None]).masked_fill(hidden, 0)
    return out.to(x.dtype)


def masked_group_norm(norm: nn.GroupNorm, x: Tensor, padding_mask: Tensor | None) -> Tensor:
    """Apply a GroupNorm to a map with each image's statistics taken over its valid cells.

    Args:
        norm: the module.
        x: (B, C, H, W).
        padding_mask: (B, H, W) bool, True = padding, or None.

    Returns:
        (B, C, H, W); with a mask, padded cells are zero.
    """
    if padding_mask is None:
        return norm(x)
    if not are_plain(norm):
        sides = (x.shape[2], x.shape[3])
        images = zip(torch.split(x, 1), valid_extents(padding_mask), strict=True)
        return torch.cat([pad_map(norm(image[..., :rows, :cols]), sides)
                          for image, (rows, cols) in images])
    valid = (~padding_mask)[:, None, None].to(x.dtype)  # (B, 1, 1, H, W)
    grouped = x.masked_fill(padding_mask[:, None], 0).reshape(
        x.shape[0], norm.num_groups, -1, *x.shape[2:])
    count = valid.sum((2, 3, 4), keepdim=True).clamp(min=1) * grouped.shape[2]
    mean = grouped.sum((2, 3, 4), keepdim=True) / count
    centred = (grouped - mean) * valid
    variance = centred.square().sum((2, 3, 4), keepdim=True) / count
    out: Tensor = (centred * (variance + norm.eps).rsqrt()).flatten(1, 2)
    if norm.affine:
        out = out * norm.weight[:, None, None] + norm.bias[:, None, None]
    return out.masked_fill(padding_mask[:, None], 0)


def masked_mean(tokens: Tensor, padding_mask: Tensor | None) -> Tensor:
    """Mean over the valid tokens of each image: (B, L, C) and (B, L) or (B, H, W) -> (B, C)."""
    if padding_mask is None:
        return tokens.mean(dim=1)
    hidden = padding_mask.flatten(1)
    total = tokens.masked_fill(hidden[..., None], 0).sum(1)
    return total / (~hidden).sum(1, keepdim=True).to(tokens.dtype)


def adaptive_means(x: Tensor, cells: int, padding_mask: Tensor | None = None) -> Tensor:
    """Means of a map (B, C, H, W) over ``cells`` rows and columns of boxes, as
    ``F.adaptive_avg_pool2d``, of each image's own extent with a mask (B, H, W).

    Two products with weights that depend on the sizes alone: for exported programs too.
    """
    batch, _, height, width = x.shape
    rows = torch.full((batch,), height, device=x.device)
    cols = torch.full((batch,), width, device=x.device)
    if padding_mask is not None:
        rows, cols = filled_extents(padding_mask).unbind(1)
        x = x.masked_fill(padding_mask[:, None], 0)
    return torch.einsum('bih,bchw,bjw->bcij', _box_weights(rows, height, cells, x.dtype), x,
                        _box_weights(cols, width, cells, x.dtype))


def _box_weights(count: Tensor, length: int, cells: int, dtype: torch.dtype) -> Tensor:
    """The weights (B, cells, length) by which ``cells`` means are computed from the first ``count``
    (B,) of ``length`` places."""
    index = torch.arange(length, device=count.device)
    cell = torch.arange(cells, device=count.device)[:, None]
    count = count[:, None, None]
    start, end = cell * count // cells, ((cell + 1) * count + cells - 1) // cells
    return ((index >= start) & (index < end)).to(dtype) / (end - start).clamp(min=1)


def pad_map(x: Tensor, hw_shape: tuple[int, int]) -> Tensor:
    """Zero-pad a map (..., H, W) to the right and below up to ``hw_shape``."""
    if are_known_equal(tuple(x.shape[-2:]), tuple(hw_shape)):
        return x
    return F.pad(x, (0, hw_shape[1] - x.shape[-1], 0, hw_shape[0] - x.shape[-2]))
