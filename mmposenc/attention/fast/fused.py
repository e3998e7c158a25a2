"""``F.scaled_dot_product_attention`` with terms: as its mask, or as further channels of queries and
keys; and windows with regions, those of one mask together."""
from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..terms import (
    AxisHalves,
    DenseBias,
    OffsetBias,
    Problem,
    QueryVector,
    Term,
    of_one_region,
    split,
)
from .sizes import on_cpu, refuse


def is_mask(term: Term) -> bool:
    """Whether a term is numbers that depend only on grids, which a mask adds."""
    return isinstance(term, OffsetBias | DenseBias)


def has_channels(term: Term) -> bool:
    """Whether further channels of queries and keys carry a term."""
    if isinstance(term, AxisHalves):
        return not term.prefix or term.prefix_vector is None
    return isinstance(term, QueryVector)


def only_channels(terms: Sequence[Term]) -> bool:
    """Whether further channels carry all of the terms, and few do: those of one pair of axes."""
    return (all(has_channels(term) for term in terms)
            and sum(isinstance(term, AxisHalves) for term in terms) <= 1)


def fused(problem: Problem) -> Tensor:
    """softmax(q k^T * scale + terms) v by PyTorch's own kernels.

    Raises:
        ValueError: for terms that are neither masks nor channels.
    """
    refuse('fused', [term for term in problem.terms if not (is_mask(term) or has_channels(term))])
    q, k, v = split(problem.qkv)
    scale, dims = problem.scale, v.shape[-1]
    channels = [term for term in problem.terms if isinstance(term, AxisHalves | QueryVector)]
    if channels:
        q, k, v = add_channels(channels, q, k, v, scale)
        scale = 1.0
    biases = [term.dense(q, k) for term in problem.terms if is_mask(term)]
    bias = sum(biases[1:], biases[0]) if biases else None
    if (problem.regions is not None and on_cpu(problem) and problem.attn_mask is None
            and problem.key_padding is None and problem.dropout_p == 0.0):
        return run_by_region(q, k, v, bias, problem.regions, scale)[..., :dims]
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=problem.mask(bias, q.dtype),
                                         dropout_p=problem.dropout_p, scale=scale)
    return out[..., :dims]


def add_channels(terms: Sequence[AxisHalves | QueryVector], q: Tensor, k: Tensor, v: Tensor,
                 scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Further channels: queries hold their products with rows and columns of keys, and keys the
    one-hot number of their row and of their column; or a one and a number of the key. Padded to a
    multiple of 8, without which SDPA has no fast kernel on a GPU.

    Args:
        terms: those with further channels.
        q: (B, heads, Lq, head_dims), not scaled; k, v: (B, heads, Lk, head_dims).
        scale: of the queries.

    Returns:
        Queries, scaled, keys and values; of the output the first head_dims channels count.
    """
    queries, keys = [q * scale], [k]
    for term in terms:
        if isinstance(term, AxisHalves):
            rows, cols, _ = term.products(q, scale)
            hk, wk = rows.shape[-1], cols.shape[-1]
            cell = torch.arange(hk * wk, device=q.device)
            one_hot = torch.cat((cell[:, None] // wk == torch.arange(hk, device=q.device),
                                 cell[:, None] % wk == torch.arange(wk, device=q.device)), 1)
            one_hot = F.pad(one_hot.to(q.dtype), (0, 0, term.prefix, 0))
            queries += [rows, cols]
            keys.append(one_hot.expand(*k.shape[:2], -1, -1))
        else:
            queries.append(q.new_ones(*q.shape[:3], 1))
            keys.append(term.dense(q, k).transpose(-2, -1))
    width = sum(x.shape[-1] for x in queries)
    fill = -width % 8
    # Values of the same width keep SDPA on its fast path, which wants equal head_dims; not on a GPU
    # in float32 or beyond 256 channels, where its only fast kernel takes any, and outputs are as
    # large as queries.
    if q.device.type == 'cpu' or (q.dtype != torch.float32 and width + fill <= 256):
        v = F.pad(v, (0, width + fill - v.shape[-1]))
    return F.pad(torch.cat(queries, -1), (0, fill)), F.pad(torch.cat(keys, -1), (0, fill)), v


def run_by_region(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, regions: Tensor,
                  scale: float) -> Tensor:
    """Fused attention of windows, those of one mask together: shifted windows know few of them.

    Args:
        q, k, v: (windows, heads, L, head_dims), windows of an image one after the other.
        bias: (1, heads or 1, L, L), the same for all windows, or None.
        regions: (windows of an image, or of all, L).

    Returns:
        (windows, heads, L, head_dims).
    """
    out = q.new_empty(q.shape[0], q.shape[2], q.shape[1], q.shape[3]).transpose(1, 2)
    kinds, hidden = _kinds(regions)
    bias = None if bias is None else bias.to(q.dtype)
    masks = [~each[None, None] if bias is None else bias.masked_fill(each, float('-inf'))
             for each in hidden]
    for part, kind in _slices(kinds, q.shape[0]):
        out[part] = F.scaled_dot_product_attention(
            q[part], k[part], v[part], attn_mask=bias if kind < 0 else masks[kind], scale=scale)
    return out


def _kinds(regions: Tensor) -> tuple[list[int], Tensor]:
    """For each window of regions (windows, L) the pairs that must not meet, by number, -1 where all
    may; and the pairs (kinds, L, L)."""
    split = (regions != regions[:, :1]).any(1)
    distinct, which = torch.unique(regions[split], dim=0, return_inverse=True)
    kinds = torch.full_like(regions[:, 0], -1)
    kinds[split] = which
    return kinds.tolist(), ~of_one_region(distinct)


def _slices(kinds: list[int], windows: int) -> list[tuple[slice, int]]:
    """Windows of one kind that a slice reaches: each in all images, or neighbours, whichever takes
    fewer slices. Images share the kinds."""
    starts = [window for window in range(windows) if window == 0 or
              kinds[window % len(kinds)] != kinds[(window - 1) % len(kinds)]]
    if len(kinds) < len(starts):
        return [(slice(first, None, len(kinds)), kind) for first, kind in enumerate(kinds)]
    return [(slice(first, stop), kinds[first % len(kinds)])
            for first, stop in zip(starts, [*starts[1:], windows], strict=True)]
