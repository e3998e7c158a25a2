"""``F.scaled_dot_product_attention`` with terms as its mask. Windows of a shifted map that have the
same mask are computed together."""
from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..terms import DenseBias, OffsetBias, Problem, Term, pairs_of_one_region
from .sizes import on_cpu, refuse_uncomputed


def fits_attn_mask(term: Term) -> bool:
    """Whether a term is numbers that depend only on the grids, so that they can be added as a mask.
    """
    return isinstance(term, OffsetBias | DenseBias)


def sdpa(problem: Problem) -> Tensor:
    """softmax(q k^T * scale + terms) v by PyTorch's own kernels.

    Raises:
        ValueError: for terms that are no masks.
    """
    refuse_uncomputed('sdpa', [term for term in problem.terms if not fits_attn_mask(term)])
    q, k, v = problem.q, problem.k, problem.v
    biases = [term.dense(q, k) for term in problem.terms]
    bias = sum(biases[1:], biases[0]) if biases else None
    if (problem.regions is not None and on_cpu(problem) and problem.attn_mask is None
            and problem.key_padding is None and problem.dropout_p == 0.0):
        return run_by_region(q, k, v, bias, problem.regions, problem.scale)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=problem.mask(bias, q.dtype),
                                          dropout_p=problem.dropout_p, scale=problem.scale)


def run_by_region(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, regions: Tensor,
                  scale: float) -> Tensor:
    """Fused attention in windows. Windows with the same mask are computed together, because shifted
    windows have only a few different masks.

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
    for part, kind in slices_of_one_kind(kinds, q.shape[0]):
        out[part] = F.scaled_dot_product_attention(
            q[part], k[part], v[part], attn_mask=bias if kind < 0 else masks[kind], scale=scale)
    return out


def _kinds(regions: Tensor) -> tuple[list[int], Tensor]:
    """Group the windows of ``regions`` (windows, L) that hide the same pairs. Returns for each
    window the number of its kind, -1 where all pairs may meet, and the hidden pairs of each kind
    (kinds, L, L)."""
    split = (regions != regions[:, :1]).any(1)
    distinct, which = torch.unique(regions[split], dim=0, return_inverse=True)
    kinds = torch.full_like(regions[:, 0], -1)
    kinds[split] = which
    return kinds.tolist(), ~pairs_of_one_region(distinct)


def slices_of_one_kind(kinds: Sequence[int], windows: int) -> list[tuple[slice, int]]:
    """Cut the windows into slices of one kind each, the kinds of all images being the same: either
    one slice for a window in all images, or one for windows that are neighbours, whichever gives
    fewer slices."""
    starts = [window for window in range(windows) if window == 0 or
              kinds[window % len(kinds)] != kinds[(window - 1) % len(kinds)]]
    if len(kinds) < len(starts):
        return [(slice(first, None, len(kinds)), kind) for first, kind in enumerate(kinds)]
    return [(slice(first, stop), kinds[first % len(kinds)])
            for first, stop in zip(starts, [*starts[1:], windows], strict=True)]
