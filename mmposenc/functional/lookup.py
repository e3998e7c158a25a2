"""Reading a table by bucket, and the adjoint: adding weights up by bucket."""
from __future__ import annotations

import torch
from torch import Tensor


def gather_buckets(lookup: Tensor, ids: Tensor) -> Tensor:
    """lookup[..., i, ids[i, j]].

    Args:
        lookup: (B, heads, Lq, buckets).
        ids: (Lq, Lk) long.

    Returns:
        (B, heads, Lq, Lk).
    """
    return lookup.gather(-1, ids.expand(*lookup.shape[:2], *ids.shape))


def bucket_sums(weights: Tensor, ids: Tensor, num_buckets: int) -> Tensor:
    """Sum of the weights of each bucket, the adjoint of :func:`gather_buckets`.

    Args:
        weights: (B, heads, Lq, Lk).
        ids: (Lq, Lk) long.

    Returns:
        (B, heads, Lq, num_buckets).
    """
    sums = torch.zeros(*weights.shape[:3], num_buckets, dtype=weights.dtype, device=weights.device)
    return sums.scatter_add(-1, ids.expand(*weights.shape[:2], *ids.shape), weights)
