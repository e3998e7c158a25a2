"""Products of a piece with tables that heads share or have one each."""
from __future__ import annotations

import torch
from torch import Tensor

from ..linear import add_product, linear, outer
from .layout import Piece


def pick_heads(table: Tensor, piece: Piece) -> Tensor:
    """Tables of the heads of a piece.

    Args:
        table: (1, ...) for all heads, or (number of heads, ...).

    Returns:
        (...) of shared heads, or (heads of all images, ...).
    """
    if table.shape[0] == 1:
        return table[0]
    picked = table[piece.heads]
    if piece.num_images == 1:
        return picked
    return picked.expand(piece.num_images, *picked.shape).flatten(0, 1)


def times_table(x: Tensor, table: Tensor, piece: Piece) -> Tensor:
    """x (heads, L, n) times the tables (1 or heads, n, m) of these heads, (heads, L, m)."""
    picked = pick_heads(table, piece)
    if picked.dim() == 2:  # One product: its rows are those of all heads.
        return linear(x.reshape(-1, x.shape[2]), picked.t()).view(*x.shape[:2], -1)
    return torch.bmm(x, picked)


def add_times_table(out: Tensor, x: Tensor, table: Tensor, piece: Piece) -> None:
    """Add :func:`times_table` to ``out`` (heads, L, m), which must be contiguous or one head."""
    picked = pick_heads(table, piece)
    if picked.dim() == 2 and out.is_contiguous():
        add_product(out.view(1, -1, out.shape[2]), x.reshape(1, -1, x.shape[2]), picked[None])
    else:
        out.baddbmm_(x, picked.expand(x.shape[0], -1, -1))


def add_by_head(total: Tensor, piece: Piece, x: Tensor) -> None:
    """Add x (heads of all images, ...) to the gradient of a table (1 or number of heads, ...)."""
    if total.shape[0] == 1:
        total[0] += x.sum(0)
    else:
        total[piece.heads] += piece.by_image(x).sum(0)


def add_table_grad(total: Tensor, piece: Piece, x: Tensor, y: Tensor) -> None:
    """Add x^T y, each (heads, L, .), to the gradient of a table (1 or number of heads, ., .)."""
    if total.shape[0] > 1:
        add_by_head(total, piece, torch.bmm(x.transpose(1, 2), y))
    else:  # sums over pieces are in float32
        total[0] += outer(x.flatten(0, 1), y.flatten(0, 1))
