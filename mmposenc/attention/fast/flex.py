"""FlexAttention (``implementation='flex'``): each kind of term as a summand of the score, read
inside its kernel.

It runs only when asked for. A type with a score_summand registers it; terms of the output have
none.
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mmposenc.functional.buckets import Buckets
from mmposenc.functional.grids import Grid, are_strides_whole, grid_offsets, sequence_places

from .. import terms
from ..terms import Problem, Term
from ..vector_terms import AxisHalves, VectorAddedToQueries
from .sizes import on_cpu, refuse_uncomputed

#: What a term adds to the logit of image b, head h, query i and key j. All of these are tensors.
Summand = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

#: The smallest number of channels of a head that torch's kernels for a GPU accept (torch 2.13).
LEAST_CHANNELS = 16


def flex(problem: Problem) -> Tensor:
    """softmax(q k^T * scale + terms) v, compiled on an accelerator. On a CPU not compiled, to be
    compared with: it builds all pairs.

    Raises:
        ValueError: for terms without a score_summand, options that it does not take, and on an
            accelerator what its kernels refuse.
    """
    refuse_uncomputed('flex', [term for term in problem.terms if not has_score_summand(term)])
    if problem.dropout_p > 0.0 or problem.attn_mask is not None or problem.regions is not None:
        raise ValueError(f"implementation='flex' takes neither dropout (dropout_p="
                         f"{problem.dropout_p}), attn_mask nor regions; use 'auto', 'chunked' or "
                         f"'reference'")
    q, k, v, every = problem.q, problem.k, problem.v, list(problem.terms)
    if not on_cpu(problem) and (q.shape[3] < LEAST_CHANNELS or q.dtype == torch.float64):
        raise ValueError(f"implementation='flex' cannot be compiled for a GPU with head_dims="
                         f"{q.shape[3]} and dtype={q.dtype}: at least {LEAST_CHANNELS} and "
                         f"no float64 are required; use 'auto', 'chunked' or 'reference'")
    if problem.key_padding is not None:
        hidden = problem.key_padding[:, None, None]
        every.append(terms.DenseBias(q.new_zeros(()).masked_fill(hidden, float('-inf'))))
    summands = [score_summand(term, q, k, problem.scale) for term in every]

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        for summand in summands:
            score = score + summand(b, h, i, j)
        return score

    kind = None if on_cpu(problem) else (
        *(type(term).__name__ for term in every), q.dtype, q.shape[3], torch.is_grad_enabled())
    out: Tensor = compiled_kernel(kind)(q, k, v, score_mod=score_mod, scale=problem.scale)
    return out


@functools.cache
def compiled_kernel(kind: Hashable) -> Callable[..., Any]:
    """FlexAttention, compiled anew for each kind of call. Kinds must not use up each other's
    recompilations, after which torch would fall back to all pairs; with ``fullgraph`` it raises an
    error instead. None means that it is not compiled."""
    # Imported here, because the import takes a second.
    from torch.nn.attention.flex_attention import flex_attention
    if kind is None:
        return flex_attention
    compiler: Any = torch.compile
    # The option came with torch 2.13.
    isolate = {'isolate_recompiles'}.intersection(inspect.signature(compiler).parameters)
    return compiler(flex_attention, dynamic=True, fullgraph=True, **dict.fromkeys(isolate, True))


@functools.singledispatch
def score_summand(term: Term, q: Tensor, k: Tensor, scale: float) -> Summand:
    """A term inside FlexAttention's kernel. ``@score_summand.register(TermType)`` gives a type its
    own, which reads each tensor with a gradient once: torch's backward pass asks for that.

    Args:
        term: one that :func:`has_score_summand`.
        q, k: (B, heads, L, head_dims), neither is scaled.
        scale: of the queries.
    """
    raise NotImplementedError


def has_score_summand(term: Term) -> bool:
    """Whether FlexAttention can compute a term: those by offset need whole strides, with others
    there are about as many offsets as pairs."""
    grids = term.buckets if isinstance(term, terms.Table) else term
    if (isinstance(grids, Buckets | terms.OffsetBias)
            and not are_strides_whole(grids.query, grids.key)):
        return False
    return score_summand.dispatch(type(term)) is not score_summand.dispatch(Term)


@score_summand.register(terms.DenseBias)
def dense_bias_summand(term: terms.DenseBias, q: Tensor, k: Tensor, scale: float) -> Summand:
    bias, (images, heads, queries) = _checked_look_up(term.bias), term.bias.shape[:3]
    return lambda b, h, i, j: bias[b * (images > 1), h * (heads > 1), i * (queries > 1), j]


@score_summand.register(terms.TableByQuery)
def table_by_query_summand(term: terms.TableByQuery, q: Tensor, k: Tensor, scale: float) -> Summand:
    lookup = _checked_look_up(q @ (term.table * scale))
    bucket = _bucket_function(term.buckets, q.device)
    return lambda b, h, i, j: lookup[b, h, i, bucket(i, j)]


@score_summand.register(terms.TableByKey)
def table_by_key_summand(term: terms.TableByKey, q: Tensor, k: Tensor, scale: float) -> Summand:
    lookup, bucket = _checked_look_up(k @ term.table), _bucket_function(term.buckets, q.device)
    return lambda b, h, i, j: lookup[b, h, j, bucket(i, j)]


@score_summand.register(terms.OffsetBias)
def offset_bias_summand(term: terms.OffsetBias, q: Tensor, k: Tensor, scale: float) -> Summand:
    offset_index = _offset_index_function(term.query, term.key, term.prefix, q.device)
    table = term.table.flatten(1)
    behind = table.new_zeros(1, 3) if term.prefix_bias is None else term.prefix_bias
    heads = max(len(table), len(behind))
    table = torch.cat((table.expand(heads, -1), behind.expand(heads, -1)), 1)
    return lambda b, h, i, j: table[h * (heads > 1), offset_index(i, j)]


@score_summand.register(AxisHalves)
def axis_halves_summand(term: AxisHalves, q: Tensor, k: Tensor, scale: float) -> Summand:
    rows, cols, prefix = term.products(q, scale)
    p, hk, wk = term.prefix, rows.shape[-1], cols.shape[-1]
    cell = torch.arange(hk * wk, device=q.device)
    # Prefix keys have a row and a column of their own behind the others. Softmax ignores what is
    # added to all keys of a prefix query.
    row_of, col_of = F.pad(cell // wk, (p, 0), value=hk), F.pad(cell % wk, (p, 0), value=wk)
    behind = rows.new_zeros(*rows.shape[:3], 1) if prefix is None else F.pad(
        prefix[:, :, p:], (0, 0, p, 0))
    rows, cols = _checked_look_up(torch.cat((rows, behind), -1)), _checked_look_up(F.pad(cols,
                                                                                         (0, 1)))
    return lambda b, h, i, j: rows[b, h, i, row_of[j]] + cols[b, h, i, col_of[j]]


@score_summand.register(VectorAddedToQueries)
def query_vector_summand(term: VectorAddedToQueries, q: Tensor, k: Tensor, scale: float) -> Summand:
    return score_summand(terms.DenseBias(term.dense(q, k)), q, k, scale)


def _checked_look_up(look_up: Tensor) -> Tensor:
    """A tensor that a kernel may read, after a check: kernels use 32-bit indices, whatever its
    size."""
    if look_up.numel() > 2 ** 31 - 1:
        raise ValueError(f"implementation='flex' would read a look-up of {look_up.numel()} "
                         f"numbers, more than {2 ** 31 - 1}; use 'auto', 'chunked' or 'reference'")
    return look_up


def _bucket_function(buckets: Buckets, device: torch.device) -> Callable[[Tensor, Tensor], Tensor]:
    """The bucket of a pair, computed from the indices of its offsets, so that no index of all pairs
    is needed."""
    if buckets.method == 'sequence':
        limit, sign = int(buckets.params.beta), -1 if buckets.reverse else 1
        places = sequence_places(buckets.query, buckets.key, buckets.prefix, device)
        return lambda i, j: (sign * (i - places[j])).clamp(-limit, limit) + limit
    offset_index = _offset_index_function(buckets.query, buckets.key, buckets.prefix, device)
    table = buckets.by_offset(device)[0].flatten()
    table = F.pad(table, (0, 3), value=buckets.num_offset_buckets)
    return lambda i, j: table[offset_index(i, j)]


def _offset_index_function(query: Grid, key: Grid, prefix: int, device: torch.device
                           ) -> Callable[[Tensor, Tensor], Tensor]:
    """The index of tokens i and j in a flattened table of offsets (Dr * Dc), which has three more
    entries: prefix to cell, cell to prefix and prefix to prefix. Strides must be whole numbers."""
    rows, row_index, cols, col_index = grid_offsets(query, key, device)
    length, width = len(rows) * len(cols), len(cols)
    of_query = row_index[:, :1] * width + col_index[:, 0]
    of_key = (row_index[0] - row_index[0, 0])[:, None] * width + col_index[0] - col_index[0, 0]
    by_query, by_key = (F.pad(each.flatten(), (prefix, 0)) for each in (of_query, of_key))

    def offset_index(i: Tensor, j: Tensor) -> Tensor:
        behind = torch.where(i < prefix, length + 2 * (j < prefix), length + 1)
        return torch.where((i < prefix) | (j < prefix), behind, by_query[i] + by_key[j])
    return offset_index
