"""Tables of vectors that heads share or have one each, for a run of heads of a batch."""
from __future__ import annotations

import torch
from torch import Tensor


def by_head(q: Tensor, k: Tensor, v: Tensor, key_padding_mask: Tensor | None
            ) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor | None]:
    """q, k, v (images * heads, L, head_dims) and the padding (images * heads, Lk).

    Half precision in float32: buffers are small, and sums over the keys stay exact.
    """
    dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    q_rows, k_rows, v_rows = (x.to(dtype).flatten(0, 1).contiguous() for x in (q, k, v))
    if key_padding_mask is not None:
        key_padding_mask = key_padding_mask.repeat_interleave(q.shape[1], 0)
    return (q_rows, k_rows, v_rows), key_padding_mask


def pick_heads(table: Tensor, heads: slice) -> Tensor:
    """Tables of a run of heads.

    Args:
        table: (1, ...) for all heads, or (number of heads, ...).
        heads: of images * heads, images one after the other.

    Returns:
        (...) of shared heads, or (heads in the run, ...).
    """
    if table.shape[0] == 1:
        return table[0]
    return table[torch.arange(heads.start, heads.stop, device=table.device) % table.shape[0]]


def times_table(x: Tensor, table: Tensor, heads: slice) -> Tensor:
    """x (heads, L, n) times the tables (1 or heads, n, m) of these heads, (heads, L, m)."""
    picked = pick_heads(table, heads)
    if picked.dim() == 2:  # One product: its rows are those of all heads.
        return torch.mm(x.reshape(-1, x.shape[2]), picked).view(*x.shape[:2], -1)
    return torch.bmm(x, picked)


def add_times_table(out: Tensor, x: Tensor, table: Tensor, heads: slice) -> None:
    """Add :func:`times_table` to ``out`` (heads, L, m), which must be contiguous or one head."""
    picked = pick_heads(table, heads)
    if picked.dim() == 2 and out.is_contiguous():
        out.view(-1, out.shape[2]).addmm_(x.reshape(-1, x.shape[2]), picked)
    else:
        out.baddbmm_(x, picked.expand(x.shape[0], -1, -1))


def add_table_grad(total: Tensor, heads: slice, x: Tensor, y: Tensor) -> None:
    """Add x^T y, each (heads, L, .), to the gradient of a table (1 or number of heads, ., .)."""
    if total.shape[0] == 1:
        total[0].addmm_(x.flatten(0, 1).t(), y.flatten(0, 1))
    else:
        which = torch.arange(heads.start, heads.stop, device=x.device) % total.shape[0]
        total.index_add_(0, which, torch.bmm(x.transpose(1, 2), y))
