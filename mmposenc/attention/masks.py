"""Which pairs of a query and a key may meet: checks of masks, and queries that have no key."""
from __future__ import annotations

import torch
from torch import Tensor

from ..functional.extents import cells_of, check_mask
from ..functional.tracing import is_compiling
from .terms import DenseBias, Problem


def with_checked_masks(problem: Problem) -> Problem:
    """The problem with a mask of four axes.

    Raises:
        ValueError: a mask has another kind of numbers, or does not fit.
    """
    attn_mask, regions = problem.attn_mask, problem.regions
    batch, heads, queries, keys = *problem.q.shape[:3], problem.k.shape[2]
    if problem.query_padding is not None:
        check_mask(cells_of(problem.query_padding), (batch, queries), 'query_padding_mask')
    # While compiling, a comparison of sizes would become a condition of the graph.
    compares = not is_compiling()
    if compares and attn_mask is not None:
        if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
            raise ValueError(f'attn_mask has dtype {attn_mask.dtype}; bool (True = may attend) or '
                             f'floating numbers (added to the logits) are required')
        sides = zip(reversed(attn_mask.shape), (keys, queries, heads, batch), strict=False)
        if attn_mask.dim() > 4 or any(side not in (1, full) for side, full in sides):
            raise ValueError(f'attn_mask has shape {tuple(attn_mask.shape)}, which is not '
                             f'broadcastable to (B, heads, Lq, Lk) = '
                             f'{(batch, heads, queries, keys)}')
    if compares and regions is not None and (
            regions.is_floating_point() or regions.dim() != 2
            or not queries == keys == regions.shape[1] or batch % regions.shape[0]):
        raise ValueError(f'regions has shape {tuple(regions.shape)} and dtype {regions.dtype}; '
                         f'whole numbers (n, L) are required, n a divisor of B = {batch} and L = '
                         f'{queries} queries = {keys} keys')
    return problem if attn_mask is None else problem._replace(
        attn_mask=attn_mask[(None,) * (4 - attn_mask.dim())])


def open_blocked_queries(problem: Problem) -> tuple[Problem, Tensor | None]:
    """Let queries that may attend to no key attend to some, so that no softmax is over nothing.
    Returns the changed problem and which queries these are, (B or 1, heads or 1, Lq, 1), so that
    the caller can clear their output; None where every query has a key."""
    both = problem.regions is not None and problem.key_padding is not None
    if problem.attn_mask is None and not both:
        return problem, None
    others = problem._replace(attn_mask=None).mask(None, torch.bool)
    mask = _masks_joined(problem.attn_mask, others)
    assert mask is not None
    without_keys = ~(mask if mask.dtype == torch.bool else mask != float('-inf')).any(
        -1, keepdim=True)
    if both:  # They were joined into one mask, in which queries can be given a key.
        problem = problem._replace(regions=None, key_padding=None)
    elif problem.attn_mask is not None:
        mask = problem.attn_mask
    mask = mask.expand(*mask.shape[:2], problem.q.shape[2], problem.k.shape[2])
    if mask.dtype == torch.bool:
        return problem._replace(attn_mask=mask | without_keys), without_keys
    bias = DenseBias(mask.masked_fill(without_keys, 0.0))
    return problem._replace(terms=[*problem.terms, bias], attn_mask=None), without_keys


def _masks_joined(mask: Tensor | None, keep: Tensor | None) -> Tensor | None:
    """A mask, bool or floating, that also hides the pairs where ``keep`` is False."""
    if mask is None or keep is None:
        return keep if mask is None else mask
    return mask & keep if mask.dtype == torch.bool else mask.masked_fill(~keep, float('-inf'))
