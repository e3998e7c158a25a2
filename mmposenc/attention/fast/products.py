"""Products of chunks: in place, and with tables that heads share or have one each."""
from __future__ import annotations

import torch
from torch import Tensor

from mmposenc.functional import linear as cpu
from mmposenc.functional.linear import linear, transposed_product

from . import thresholds
from .layout import Chunk


def add_product(out: Tensor, a: Tensor, b: Tensor, beta: float = 1.0, alpha: float = 1.0) -> None:
    """out = beta * out + alpha * a b of (n, ., .) matrices, in place and without gradients;
    ``beta`` is 0 (what is in ``out`` then does not count) or 1."""
    if not is_onednn_product(a, b):
        torch.baddbmm(out, a, b, beta=beta, alpha=alpha, out=out)
        return
    for target, x, y in zip(out, a, b, strict=True):
        # oneDNN copies a first operand that is transposed, so the smaller operand is put there.
        turned = x.stride(-1) != 1
        product = (cpu.onednn_product(y.t(), x, None).t() if turned else
                   cpu.onednn_product(x, y.t(), None))
        if beta:
            target.add_(product, alpha=alpha)
        else:
            torch.mul(product, alpha, out=target)


def is_onednn_product(a: Tensor, b: Tensor) -> bool:
    """Whether :func:`add_product` computes these (n, ., .) matrices by oneDNN, one at a time."""
    return (a.dtype == torch.float32 and a.device.type == 'cpu'
            and a.shape[1] * a.shape[2] * b.shape[2] >= cpu.MIN_PRODUCT
            and cpu.onednn_halves_time() and bool(torch.backends.mkldnn.enabled)
            and all(cpu.has_contiguous_side(x[0]) for x in (a, b)))


def with_heads(table: Tensor) -> Tensor:
    """A table (n, m) of all heads, or one (heads, n, m) of each, as (1 or heads, n, m)."""
    return table if table.dim() == 3 else table[None]


def tables_of_chunk(table: Tensor, chunk: Chunk) -> Tensor:
    """Tables of the heads of a chunk.

    Args:
        table: (1, ...) for all heads, or (number of heads, ...).

    Returns:
        (...) of shared heads, or (heads of all images, ...).
    """
    if table.shape[0] == 1:
        return table[0]
    picked = table[chunk.heads]
    if chunk.num_images == 1:
        return picked
    return picked.expand(chunk.num_images, *picked.shape).flatten(0, 1)


def times_table(x: Tensor, table: Tensor, chunk: Chunk) -> Tensor:
    """Multiply x (heads, L, n) by the tables (1 or heads, n, m) of its heads: (heads, L, m)."""
    picked = tables_of_chunk(table, chunk)
    if picked.dim() == 2:  # One matrix product is enough: its rows are the tokens of all heads.
        return linear(x.reshape(-1, x.shape[2]), picked.t()).view(*x.shape[:2], -1)
    return torch.bmm(x, picked)


def add_times_table(out: Tensor, x: Tensor, table: Tensor, chunk: Chunk) -> None:
    """Add :func:`times_table` to ``out`` (heads, L, m), which must be contiguous or one head."""
    picked = tables_of_chunk(table, chunk)
    if picked.dim() == 2 and out.is_contiguous():
        add_product(out.view(1, -1, out.shape[2]), x.reshape(1, -1, x.shape[2]), picked[None])
    else:
        out.baddbmm_(x, picked.expand(x.shape[0], -1, -1))


def add_sum(total: Tensor, x: Tensor) -> None:
    """Add x (n, ...) to ``total`` (...). Few are added one by one, where torch's sum over n takes
    two (float32) to five times as long (bfloat16, two images), and rounds in between."""
    for each in x if x.shape[0] <= thresholds.FEW_TO_SUM else x.sum(0, keepdim=True):
        total += each


def add_summed_by_head(total: Tensor, chunk: Chunk, x: Tensor) -> None:
    """Add x (heads of all images, ...) to the gradient of a table (1 or number of heads, ...)."""
    if total.shape[0] == 1:
        add_sum(total[0], x)
    else:
        add_sum(total[chunk.heads], chunk.by_image(x))


def add_table_grad(total: Tensor, chunk: Chunk, x: Tensor, y: Tensor) -> None:
    """Add x^T y, each (heads, L, .), to the gradient of a table (1 or number of heads, ., .)."""
    if total.shape[0] > 1:
        add_summed_by_head(total, chunk, torch.bmm(x.transpose(1, 2), y))
    else:  # Sums over chunks stay in float32.
        total[0] += transposed_product(x.flatten(0, 1), y.flatten(0, 1))
