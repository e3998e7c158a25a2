"""Poolings that ContextPool is compared with: fixed windows, random tokens, weights by pairs."""
from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .kernels import pool_by_definition_in_parts


def global_mean(x: Tensor, weights: Tensor) -> Tensor:
    """sum_j w_j x_j / sum_j w_j for every token.

    Args:
        x: (B, L, C).
        weights: (B, L), >= 0, with a positive one in each image; tokens of weight 0 come back as
            they are.

    Returns:
        (B, L, C).
    """
    mean = torch.einsum('bl,blc->bc', weights, x) / weights.sum(1, keepdim=True)
    return torch.where(weights[..., None] > 0, mean[:, None], x)


def window_mean(x: Tensor, weights: Tensor, hw_shape: tuple[int, int], window_size: int) -> Tensor:
    """Weighted mean over square windows of one size, which end at the map's border.

    Args:
        x: (B, H*W, C).
        weights: (B, H*W), >= 0; tokens of weight 0 come back as they are.
        hw_shape: (H, W).
        window_size: side of the windows in cells, odd.

    Returns:
        (B, H*W, C).
    """
    tokens = torch.cat((x * weights[..., None], weights[..., None]), -1)
    sums = tokens.view(x.shape[0], *hw_shape, tokens.shape[-1]).permute(0, 3, 1, 2)
    # Zeros beyond the border count, so that both sums are divided by the same number, the side of
    # the window. Pooling could add them itself, but on a GPU torch (2.11, for one) then computes
    # wrong gradients: its kernel for this layout of a map forgets them.
    sums = F.pad(sums, (window_size // 2,) * 4)
    sums = F.avg_pool2d(sums, (window_size, 1), 1)
    sums = F.avg_pool2d(sums, (1, window_size), 1).flatten(2).transpose(1, 2)
    valid = weights[..., None] > 0
    return torch.where(valid, sums[..., :-1] / torch.where(valid, sums[..., -1:], 1), x)


def random_mean(x: Tensor, weights: Tensor, hw_shape: tuple[int, int], extents: Tensor,
                num_random: int) -> Tensor:
    """Weighted mean of each token and ``num_random`` others, drawn once for all images of a size.

    Args:
        x: (B, H*W, C).
        weights: (B, H*W), >= 0; tokens of weight 0 come back as they are.
        hw_shape: (H, W).
        extents: (B, 2), rows and columns of each image; others' tokens are never drawn.
        num_random: tokens drawn for each; the same may be drawn twice.

    Returns:
        (B, H*W, C).
    """
    width = hw_shape[1]
    at = torch.arange(x.shape[1], device=x.device)
    rows, cols = at // width, at % width
    weighted = x * weights[..., None]
    sums, total = weighted, weights
    for draw in range(num_random):
        row = (_hash(rows, cols, 2 * draw) * extents[:, :1]).long()
        col = (_hash(rows, cols, 2 * draw + 1) * extents[:, 1:]).long()
        drawn = row * width + col  # (B, L)
        sums = sums + weighted.gather(1, drawn[..., None].expand_as(x))
        total = total + weights.gather(1, drawn)
    valid = weights[..., None] > 0
    return torch.where(valid, sums / torch.where(valid, total[..., None], 1), x)


def _hash(rows: Tensor, cols: Tensor, draw: int) -> Tensor:
    """Pseudo-random numbers in [0, 1) that depend only on the cell and the draw, so that padding
    changes none of them."""
    value = (rows * 73856093) ^ (cols * 19349663) ^ (draw * 83492791 + 1)
    for _ in range(2):
        value = ((value ^ (value >> 15)) * 0x2C1B3C6D) & 0x7FFFFFFF
    return (value ^ (value >> 13)).double() / 2 ** 31


def nonlocal_pool(x: Tensor, queries: Tensor, keys: Tensor, padding: Tensor | None, sigma: Tensor,
                  hw_shape: tuple[int, int], kernel: str, causal: bool) -> Tensor:
    """y_i = sum_j w_ij g_ij x_j / sum_j w_ij g_ij with w_ij = exp(q_i . k_j): weights by pairs, as
    in non-local networks (Wang et al., CVPR 2018, embedded Gaussian).

    Args:
        x: (B, H*W, C).
        queries, keys: (B, H*W, D), the queries scaled.
        padding: (B, H*W) bool, True = padding, which comes back as it is; or None.
        sigma: (B, H*W) in cells.
        hw_shape: (H, W).
        kernel, causal: as for :func:`.adaptive.context_pool`.

    Returns:
        (B, H*W, C). A few tokens at a time, computed again in the backward pass.
    """
    logits = torch.zeros_like(sigma)
    if padding is not None:
        logits = logits.masked_fill(padding, -math.inf)
    cells = torch.arange(x.shape[1], device=x.device)
    return pool_by_definition_in_parts(x, logits, sigma, hw_shape, cells, kernel, causal,
                                       queries_keys=(queries, keys))
