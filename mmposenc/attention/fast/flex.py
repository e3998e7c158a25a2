"""FlexAttention: terms as score_mods, whose look-ups are read inside its kernel.

A type with a score_mod registers it. Those of the output have none, and those of a sequence none
that would save memory.
"""
from __future__ import annotations

import functools
import importlib.util
import inspect
import math
import warnings
from collections.abc import Callable, Hashable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mmposenc.functional.buckets import Buckets
from mmposenc.functional.grid_cache import CACHE
from mmposenc.functional.grids import Grid, grid_offsets, sequence_places, whole_strides

from ..terms import (
    AxisHalves,
    DenseBias,
    OffsetBias,
    Problem,
    QueryVector,
    Table,
    TableByKey,
    TableByQuery,
    Term,
    split,
)
from .pieces import pieces
from .sizes import on_cpu, refuse

#: What a term adds to the logit of image b, head h, query i and key j, all of them tensors.
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

#: Queries and keys of a block that FlexAttention skips or computes as a whole, its default.
BLOCK = 128
#: Queries (M) and keys (N) at a time for 16 to 128 channels. With torch's blocks kernels for sm_90
#: spilled up to 3648 bytes a thread forward (bfloat16, 32 channels: iRPE on keys with a class token
#: and padding) and 1772 backward (Huang there), 41,232 in float32 (iRPE on keys, 64 channels).
#: Chosen only by what spills: no kernel was run on a GPU.
HALF = dict(fwd_BLOCK_M=64, fwd_BLOCK_N=32,
            bwd_BLOCK_M1=32, bwd_BLOCK_N1=64, bwd_BLOCK_M2=64, bwd_BLOCK_N2=32)
FLOAT32 = dict(fwd_BLOCK_M=32, fwd_BLOCK_N=32)
#: What its kernels for a GPU take (torch 2.13): products have at least so many channels, sums are
#: in float32, and a look-up is read by 32-bit indices, whatever its size.
LEAST_CHANNELS, DTYPES, MOST_NUMBERS = (
    16, (torch.float16, torch.bfloat16, torch.float32), 2 ** 31 - 1)


def flex(problem: Problem) -> Tensor:
    """softmax(q k^T * scale + terms) v, compiled on an accelerator. On a CPU not compiled, to be
    compared with: it builds all pairs.

    Raises:
        ValueError: for terms without a score_mod, options that it does not take, and on an
            accelerator what its kernels refuse.
    """
    refuse('flex', [term for term in problem.terms if not has_score_mod(term)])
    if problem.dropout_p > 0.0 or problem.attn_mask is not None or problem.regions is not None:
        raise ValueError(f"form='flex' takes neither dropout (dropout_p={problem.dropout_p}), "
                         f"attn_mask nor regions; use 'auto', 'pieces' or 'definition'")
    reason = None if on_cpu(problem) else refusal(problem)
    if reason is not None:
        raise ValueError(f"form='flex' cannot be compiled for a GPU: {reason}; use 'auto', "
                         f"'pieces' or 'definition'")
    try:
        return _run(problem)
    except Exception as error:  # by its name: importing torch._dynamo takes a second
        if type(error).__name__ != 'FailOnRecompileLimitHit':
            raise
        warnings.warn('FlexAttention was compiled too often for calls of this kind; pieces compute '
                      'them from here on (torch._dynamo.config.recompile_limit)', stacklevel=2)
        return pieces(problem)


def fits(problem: Problem) -> bool:
    """Whether FlexAttention can run all of it; what its backward pass adds to look-ups comes in any
    order."""
    return (problem.dropout_p == 0.0 and problem.attn_mask is None and problem.regions is None
            and has_triton() and not torch.are_deterministic_algorithms_enabled()
            and all(has_score_mod(term) for term in problem.terms) and refusal(problem) is None)


@functools.cache
def has_triton() -> bool:
    """Whether FlexAttention can be compiled for a GPU here."""
    return importlib.util.find_spec('triton') is not None


def _run(problem: Problem) -> Tensor:
    (q, k, v), scale = split(problem.qkv), problem.scale
    mods = [score_mod(term, q, k, scale) for term in problem.terms]

    def all_mods(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        for mod in mods:
            score = score + mod(b, h, i, j)
        return score

    padding = problem.key_padding
    mask = None if padding is None else padding_blocks(padding, q.shape[2])
    if on_cpu(problem):
        run = _eager()
    else:
        kinds = tuple(type(term).__name__ for term in problem.terms)
        run = compiled((kinds, q.dtype, q.shape[3], mask is None, torch.is_grad_enabled()))
    out: Tensor = run(q, k, v, score_mod=all_mods, block_mask=mask, scale=scale,
                      kernel_options=blocks_of_pairs(q))
    return out


@functools.singledispatch
def score_mod(term: Term, q: Tensor, k: Tensor, scale: float) -> ScoreMod:
    """A term inside FlexAttention's kernel. ``@score_mod.register(TermType)`` gives a type its own.

    Args:
        term: one that :func:`has_score_mod`.
        q, k: (B, heads, L, head_dims), neither is scaled.
        scale: of the queries.
    """
    raise NotImplementedError


def look_ups(term: Term, q: Tensor, k: Tensor) -> int:
    """Numbers of the largest tensor that a term's score_mod reads; those by offset are small."""
    if isinstance(term, DenseBias):
        return term.bias.numel()
    if not (term.reads_queries or term.reads_keys):
        return 0
    each = 1
    if isinstance(term, Table):
        each = term.buckets.num
    elif isinstance(term, AxisHalves):
        each = max(term.rows.shape[-2], term.cols.shape[-2]) + (term.prefix > 0)
    return math.prod((q if term.reads_queries else k).shape[:3]) * each


def has_score_mod(term: Term) -> bool:
    """Whether FlexAttention can compute a term, with look-ups smaller than the logits."""
    if isinstance(term, Table) and term.buckets.method == 'sequence':
        if term.buckets.num > term.buckets.prefix + term.buckets.key.num_cells:
            return False
    elif isinstance(term, Table | OffsetBias):
        grids = term.buckets if isinstance(term, Table) else term
        if not whole_strides(grids.query, grids.key):  # about as many offsets as pairs
            return False
    return score_mod.dispatch(type(term)) is not score_mod.dispatch(Term)


@score_mod.register(DenseBias)
def _(term: DenseBias, q: Tensor, k: Tensor, scale: float) -> ScoreMod:
    bias = term.bias

    def mod(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        at = [index if size > 1 else index * 0
              for index, size in zip((b, h, i), bias.shape[:3], strict=True)]
        return bias[at[0], at[1], at[2], j]
    return mod


@score_mod.register(TableByQuery)
def _(term: TableByQuery, q: Tensor, k: Tensor, scale: float) -> ScoreMod:
    lookup, bucket = q @ (term.table * scale), _bucket_of(term.buckets, q.device)
    return lambda b, h, i, j: lookup[b, h, i, bucket(i, j)]


@score_mod.register(TableByKey)
def _(term: TableByKey, q: Tensor, k: Tensor, scale: float) -> ScoreMod:
    lookup, bucket = k @ term.table, _bucket_of(term.buckets, q.device)
    return lambda b, h, i, j: lookup[b, h, j, bucket(i, j)]


@score_mod.register(OffsetBias)
def _(term: OffsetBias, q: Tensor, k: Tensor, scale: float) -> ScoreMod:
    place, behind = pair_places(term.query, term.key, term.prefix, q.device)
    table, prefix_bias = term.table.flatten(1), term.prefix_bias
    table = with_prefix(
        table, table.new_zeros(1, 3) if prefix_bias is None else prefix_bias, behind)
    return lambda b, h, i, j: table[h if table.shape[0] > 1 else h * 0, place(i, j)]


@score_mod.register(AxisHalves)
def _(term: AxisHalves, q: Tensor, k: Tensor, scale: float) -> ScoreMod:
    rows, cols, prefix = term.products(q, scale)
    p, hk, wk = term.prefix, rows.shape[-1], cols.shape[-1]
    cell = torch.arange(hk * wk, device=q.device, dtype=torch.int32)
    row_of, col_of = cell // wk, cell % wk
    if p:  # one more row and column: a kernel then decides nothing pair by pair
        row_of, col_of = F.pad(row_of, (p, 0), value=hk), F.pad(col_of, (p, 0), value=wk)
        # Softmax ignores what is added to all keys of a prefix query.
        rows = F.pad(rows, (0, 1)) if prefix is None else torch.cat(
            (rows, F.pad(prefix[:, :, p:], (0, 0, p, 0))), -1)
        cols = F.pad(cols, (0, 1))
    return lambda b, h, i, j: rows[b, h, i, row_of[j]] + cols[b, h, i, col_of[j]]


@score_mod.register(QueryVector)
def _(term: QueryVector, q: Tensor, k: Tensor, scale: float) -> ScoreMod:
    found = term.dense(q, k)
    return lambda b, h, i, j: found[b, h, i * 0, j]


def _bucket_of(buckets: Buckets, device: torch.device
               ) -> Callable[[Tensor, Tensor], Tensor]:
    """The bucket of a pair by index arithmetic on the distinct offsets: no index of all pairs."""
    if buckets.method == 'sequence':
        limit, sign = int(buckets.params.beta), -1 if buckets.reverse else 1
        places = sequence_places(buckets.query, buckets.key, buckets.prefix, device)
        return lambda i, j: (sign * (i - places[j])).clamp(-limit, limit) + limit
    place, behind = pair_places(buckets.query, buckets.key, buckets.prefix, device)
    table = buckets.by_offset(device)[0].flatten().int()
    table = with_prefix(table, table.new_full((3,), buckets.num_offset_buckets), behind)
    return lambda i, j: table[place(i, j)]


def pair_places(query: Grid, key: Grid, num_prefix_tokens: int, device: torch.device
                ) -> tuple[Callable[[Tensor, Tensor], Tensor], list[int]]:
    """Where a table of offsets (Dr, Dc), flattened, holds that of tokens i and j; and how many
    entries :func:`with_prefix` puts behind it for pairs with a prefix token. Strides are whole.

    A place is a number of the query plus one of the key, whether or not they are prefix tokens: a
    kernel reads two vectors and decides nothing pair by pair, which would take the registers it has
    (docs/results_gpu.md).
    """
    by_query, by_key, behind = CACHE.get(
        ('pair_places', query, key, num_prefix_tokens, device),
        lambda: _token_places(query, key, num_prefix_tokens, device),
        lambda found: list(found[:2]))
    return lambda i, j: by_query[i] + by_key[j], behind


def _token_places(query: Grid, key: Grid, p: int, device: torch.device
                  ) -> tuple[Tensor, Tensor, list[int]]:
    """The two numbers of :func:`pair_places`, int32, and what it puts behind the table. Those of
    prefix tokens are so large that sums of either kind of pair lie behind the table and behind one
    another."""
    rows, row_index, cols, col_index = grid_offsets(query, key, device)
    row = row_index[:, 0], row_index[0] - row_index[0, 0]
    column = col_index[:, 0], col_index[0] - col_index[0, 0]
    length, width = rows.shape[0] * cols.shape[0], cols.shape[0]
    # Cells of queries have lowest .. length - 1, those of keys -lowest .. 0.
    lowest = (key.height - 1) * int(key.stride_h) * width + (key.width - 1) * int(key.stride_w)
    by_query, by_key = (
        F.pad((r[:, None] * width + c).flatten().int(), (p, 0), value=prefix)
        for r, c, prefix in zip(row, column, (length + lowest, length + 1), strict=True))
    return by_query, by_key, [lowest + 1, length - lowest, lowest + 1] if p else []


def with_prefix(table: Tensor, kinds: Tensor, behind: list[int]) -> Tensor:
    """A table of offsets with what pairs with a prefix token have behind it.

    Args:
        table: (..., Dr * Dc).
        kinds: (..., 3) for prefix to cell, cell to prefix and prefix to prefix, as many dimensions.
        behind: of :func:`pair_places`; empty without prefix tokens.
    """
    if not behind:
        return table
    shape = torch.broadcast_shapes(  # type: ignore[no-untyped-call]
        table.shape[:-1], kinds.shape[:-1])
    parts = [kind.expand(*shape, count)
             for kind, count in zip(kinds.split(1, -1), behind, strict=True)]  # type: ignore[no-untyped-call]
    return torch.cat((table.expand(*shape, -1), *parts), -1)


def blocks_of_pairs(q: Tensor) -> dict[str, int] | None:
    """Queries and keys that a block of the kernels takes at a time; None for torch's choice.

    torch 2.13's leave look-ups no registers (docs/results_gpu.md). Backward, its blocks of
    float32 are small as they are.
    """
    if q.shape[3] > 128:
        return None
    return FLOAT32 if q.dtype == torch.float32 else HALF


def refusal(problem: Problem) -> str | None:
    """Why the kernels for a GPU can't compute it, found before they are compiled; None: they can.
    """
    q, k, _ = split(problem.qkv)
    if q.shape[3] < LEAST_CHANNELS:
        return f'head_dims={q.shape[3]} is below {LEAST_CHANNELS}'
    if q.dtype not in DTYPES:
        return f'dtype={q.dtype} is none of {", ".join(map(str, DTYPES))}'
    numbers = max((look_ups(term, q, k) for term in problem.terms), default=0)
    if numbers > MOST_NUMBERS:
        return f'a look-up would have {numbers} numbers, more than {MOST_NUMBERS}'
    return None


def padding_blocks(key_padding: Tensor, len_q: int) -> Any:
    """The BlockMask of padded keys, the same for all queries and heads.

    Args:
        key_padding: (B, Lk) bool, True = padding.
        len_q: queries.

    Differs from ``create_block_mask``: blocks are chosen by their keys, without a mask of all
    pairs.
    """
    from torch.nn.attention.flex_attention import BlockMask
    valid = ~key_padding
    blocks = F.pad(valid, (0, -valid.shape[1] % BLOCK)).unflatten(1, (-1, BLOCK))  # type: ignore[no-untyped-call]
    # Blocks that reach beyond the last query are never whole.
    first = torch.arange(0, len_q, BLOCK, device=valid.device)[:, None]
    whole = blocks.all(2)[:, None, None] & (first + BLOCK <= len_q)  # (B, 1, rows, columns)
    ordered: list[Tensor] = []
    for each in (blocks.any(2)[:, None, None] & ~whole, whole):
        index = each.int().argsort(dim=3, descending=True, stable=True).int()
        ordered += [each.sum(3, dtype=torch.int32), index]
    some, which, wholly, which_wholly = ordered
    return BlockMask.from_kv_blocks(
        some, which, wholly, which_wholly, BLOCK_SIZE=BLOCK,
        mask_mod=lambda b, h, i, j: valid[b, j], seq_lengths=(len_q, valid.shape[1]))


@functools.cache
def compiled(key: Hashable) -> Callable[..., Any]:
    """FlexAttention compiled for one kind of call: kinds do not use up each other's
    recompilations, after which torch would fall back to all pairs; with ``fullgraph`` it raises."""
    compiler: Any = torch.compile
    isolate = 'isolate_recompiles' in inspect.signature(compiler).parameters  # torch 2.13
    run: Callable[..., Any] = compiler(_eager(), dynamic=True, fullgraph=True,
                                       **(dict(isolate_recompiles=True) if isolate else {}))
    return run


def _eager() -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention
    return flex_attention
