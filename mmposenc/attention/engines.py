"""The engines that compute attention; choice.py chooses between them."""
from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from ..functional import limits
from ..functional.attention.axis_terms import AxisHalves
from ..functional.attention.channels import add_channels
from ..functional.attention.driver import Call, Hide, attend_in_pieces, split
from ..functional.attention.flex import flex_attention, refusal
from ..functional.attention.layout import Cut, Layout
from ..functional.attention.offset_terms import OffsetBias
from ..functional.attention.regions import apart, hide_regions, run_by_region
from ..functional.attention.sequence_terms import QueryVector, fold_vectors
from ..functional.attention.terms import DenseBias, Term
from ..functional.attention.writers import LogitWriter, ValueWriter
from ..functional.dropout import Dropout
from .problem import Problem


def definition(problem: Problem, need_weights: bool = False) -> tuple[Tensor, Tensor | None]:
    """Softmax of all logits, (B, heads, Lq, Lk) numbers; the other engines are held to it."""
    q, k, v = split(problem.qkv)
    scaled = q * problem.scale
    logits = [term.dense(scaled, k) for term in problem.terms if not term.on_values]
    on_values = [term for term in problem.terms if term.on_values]
    bias = _mask(problem, sum(logits[1:], logits[0]) if logits else None, q.dtype)
    if not (need_weights or on_values) and use_sdpa(bias, q):
        return F.scaled_dot_product_attention(
            scaled, k, v, attn_mask=bias, dropout_p=problem.dropout_p, scale=1.0), None
    scores = scaled @ k.transpose(-2, -1)
    if bias is not None:
        scores = (scores.masked_fill(~bias, float('-inf')) if bias.dtype == torch.bool
                  else scores + bias)
    weights = scores.softmax(-1).to(v.dtype)
    if problem.dropout_p > 0.0:
        weights = F.dropout(weights, problem.dropout_p)
    out = weights @ v
    for term in on_values:
        out = out + term.dense_values(weights)
    return out, weights if need_weights else None


def use_sdpa(bias: Tensor | None, q: Tensor) -> bool:
    """A mask that needs a gradient sends SDPA to its slow path on a CPU."""
    return bias is None or not bias.requires_grad or q.device.type != 'cpu'


def not_fused(term: Term) -> bool:
    """A term that is neither a mask nor can be further channels."""
    if isinstance(term, AxisHalves):
        return bool(term.prefix) and term.prefix_vector is not None
    return not isinstance(term, OffsetBias | DenseBias | QueryVector)


def fused(problem: Problem) -> Tensor:
    """``F.scaled_dot_product_attention``; biases as its mask, halves of an axis as further channels
    of queries and keys."""
    _refuse('fused', [term for term in problem.terms if not_fused(term)])
    q, k, v = split(problem.qkv)
    scale, dims = problem.scale, v.shape[-1]
    channels = [term for term in problem.terms if isinstance(term, AxisHalves | QueryVector)]
    if channels:
        q, k, v = add_channels(channels, q, k, v, scale)
        scale = 1.0
    biases = [term.dense(q, k) for term in problem.terms if term not in channels]
    bias = sum(biases[1:], biases[0]) if biases else None
    if (problem.regions is not None and q.device.type == 'cpu' and problem.attn_mask is None
            and problem.key_padding is None and problem.dropout_p == 0.0
            and not torch.compiler.is_compiling()):  # which windows have regions is no code
        return run_by_region(q, k, v, bias, problem.regions, scale)[..., :dims]
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=_mask(problem, bias, q.dtype),
                                         dropout_p=problem.dropout_p, scale=scale)
    return out[..., :dims]


def pieces(problem: Problem) -> Tensor:
    """A few queries at a time (:mod:`mmposenc.functional.attention.driver`)."""
    _refuse('pieces', [term for term in problem.terms if not term.has_writer])
    dtype = problem.qkv[0].dtype
    with torch.autocast(problem.qkv[0].device.type, enabled=False):
        # Half precision has no fast products on a CPU; bfloat16 has.
        work = torch.float32 if dtype == torch.float16 and problem.on_cpu else dtype
        qkv = tuple(x.to(work) for x in problem.qkv)
        out = attend_in_pieces(_call(problem, *split(qkv)), qkv)
    return out.to(dtype)


def _call(problem: Problem, q: Tensor, k: Tensor, v: Tensor) -> Call:
    """Layout, writers and sizes of pieces."""
    with_values = any(term.on_values for term in problem.terms)
    runs = problem.pairs >= (limits.RUNS_WITH_VALUES_FROM if with_values else limits.RUNS_FROM)
    tables = any(term.reads_by_bucket for term in problem.terms)
    layout = Layout(problem.query, problem.key, problem.prefix, q.shape[2], k.shape[2],
                    filled=runs and tables)
    writers = [term.writer(q, k, layout, problem.scale, _is_long(term, problem, runs))
               for term in problem.terms]
    hides: list[Hide] = []
    if problem.key_padding is not None:
        padding = layout.arrange(problem.key_padding[:, None, None], -1, True)
        hides.append(lambda piece: piece.of(padding))
    if problem.attn_mask is not None:
        hidden = layout.arrange(~problem.attn_mask[(None,) * (4 - problem.attn_mask.dim())], -1)
        hides.append(lambda piece: piece.of(hidden))
    if problem.regions is not None:
        hides.append(hide_regions(problem.regions))
    trains = problem.trains
    keep = trains and problem.bytes <= (
        limits.KEPT_BYTES if problem.pairs >= limits.WINDOW_PAIRS else limits.WINDOW_KEPT_BYTES)
    several, one = (limits.PIECE_BYTES, limits.ROWS_BYTES) if problem.on_cpu else (
        limits.ACCELERATOR_REDUCED_PIECE_BYTES if problem.is_reduced
        else limits.ACCELERATOR_PIECE_BYTES,) * 2
    if trains and problem.pairs < limits.WINDOW_PAIRS:
        several //= 2
    return Call(tuple(w for w in writers if isinstance(w, LogitWriter)),
                tuple(w for w in writers if isinstance(w, ValueWriter)), tuple(hides), layout,
                Cut(several // q.element_size(), one // q.element_size(),
                    any(writer.whole_rows for writer in writers),
                    min((w.most_queries for w in writers if w.most_queries), default=None)),
                problem.scale,
                Dropout(problem.dropout_p, q.device) if problem.dropout_p > 0.0 else None, keep)


def _is_long(term: Term, problem: Problem, runs: bool) -> bool:
    return problem.pairs >= limits.SHIFTS_FROM if isinstance(term, OffsetBias) else runs


def _refuse(form: str, terms: Sequence[Term]) -> None:
    if terms:
        names = ', '.join(sorted({type(term).__name__ for term in terms}))
        raise ValueError(f"form={form!r} cannot compute terms of the kind {names}; use 'auto', "
                         f"'pieces' or 'definition'")


def flex(problem: Problem) -> Tensor:
    """FlexAttention with the terms' score_mods; compiled on an accelerator."""
    _refuse('flex', [term for term in problem.terms if not term.has_score_mod])
    if problem.dropout_p > 0.0 or problem.attn_mask is not None or problem.regions is not None:
        raise ValueError(f"form='flex' takes neither dropout (dropout_p={problem.dropout_p}), "
                         f"attn_mask nor regions; use 'auto', 'pieces' or 'definition'")
    q, k, v = split(problem.qkv)
    reason = None if problem.on_cpu else refusal(q, k, problem.terms)
    if reason is not None:
        raise ValueError(f"form='flex' cannot be compiled for a GPU: {reason}; use 'auto', "
                         f"'pieces' or 'definition'")
    try:
        return flex_attention(q, k, v, problem.terms, problem.key_padding, problem.scale)
    except Exception as error:  # by its name: importing torch._dynamo takes a second
        if type(error).__name__ != 'FailOnRecompileLimitHit':
            raise
        warnings.warn('FlexAttention was compiled too often for calls of this kind; pieces compute '
                      'them from here on (torch._dynamo.config.recompile_limit)', stacklevel=2)
        return pieces(problem)


ENGINES: dict[str, Callable[[Problem], Tensor]] = {
    'definition': lambda problem: definition(problem)[0], 'fused': fused, 'pieces': pieces,
    'flex': flex}


def _mask(problem: Problem, bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """One mask for all: bool (True = attend) where nothing is added to the logits."""
    keep = problem.attn_mask
    if problem.key_padding is not None:
        valid = ~problem.key_padding[:, None, None]
        keep = valid if keep is None else keep & valid
    if problem.regions is not None:
        same = ~apart(problem.regions)
        same = same.repeat(problem.qkv[0].shape[0] // same.shape[0], 1, 1)[:, None]
        keep = same if keep is None else keep & same
    if keep is None or bias is None:
        return keep if bias is None else bias.to(dtype)
    return bias.to(dtype).masked_fill(~keep, float('-inf'))


def ready(problem: Problem) -> Problem:
    """With vectors that only queries meet added to the keys."""
    q, k, v = split(problem.qkv)
    terms, folded = fold_vectors(list(problem.terms), k)
    if folded is k:
        return problem
    return problem._replace(qkv=(q, folded, v), terms=terms)
