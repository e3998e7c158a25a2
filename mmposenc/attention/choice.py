"""Which engine computes an attention: the one place that chooses."""
from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import cache

import torch

from ..functional import limits
from ..functional.attention.driver import split
from ..functional.attention.flex import refusal
from ..functional.attention.offset_terms import OffsetBias
from ..functional.attention.sequence_terms import QueryVector
from ..functional.attention.terms import DenseBias, Term
from ..functional.linear import onednn_is_faster
from .engines import not_fused
from .problem import Problem


def choose(problem: Problem) -> str:
    """The engine that is fastest, by :mod:`mmposenc.functional.limits`."""
    is_plain = not problem.terms and problem.dropout_p == 0.0
    if is_counted(problem):
        return 'fused' if is_plain else 'definition'
    if not problem.on_cpu:
        if has_many_look_ups(problem):
            return 'pieces'
        if is_plain or fits_fused(problem):
            return 'fused'
        if problem.bytes <= limits.ACCELERATOR_DEFINITION_BYTES or not has_writers(problem):
            return 'definition'
        return 'flex' if problem.pairs >= limits.FLEX_FROM and fits_flex(problem) else 'pieces'
    if problem.bytes <= limits.DEFINITION_BYTES or not has_writers(problem):
        return 'definition'
    if is_plain and (problem.regions is None or not problem.trains):
        return 'pieces' if problem.regions is None and _plain_pieces_pay(problem) else 'fused'
    few = problem.pairs < limits.MASK_BELOW and not problem.trains and problem.dropout_p == 0.0
    return 'fused' if few and _adds_bias(problem.terms) else 'pieces'


def _plain_pieces_pay(problem: Problem) -> bool:
    q, k, _ = split(problem.qkv)
    if k.shape[2] < limits.PLAIN_PIECES_KEYS:
        return False
    if q.dtype == torch.bfloat16:
        return problem.pairs >= limits.PLAIN_HALF_FROM
    return (q.dtype == torch.float32 and problem.pairs >= limits.PLAIN_PIECES_FROM
            and onednn_is_faster())


def is_counted(problem: Problem) -> bool:
    """A compiler fuses look-ups itself; on the meta device the definition is what is counted."""
    return torch.compiler.is_compiling() or problem.qkv[0].device.type == 'meta'


def fits_fused(problem: Problem) -> bool:
    """Whether further channels can carry the terms: halves of an axis, numbers of keys alone."""
    kinds = [term for term in problem.terms if not isinstance(term, QueryVector)]
    return not any(not_fused(term) for term in problem.terms) and len(kinds) <= 1 and not any(
        isinstance(term, OffsetBias | DenseBias) for term in kinds)


def has_many_look_ups(problem: Problem) -> bool:
    """Whether queries are so many that what other forms look up for each of them weighs more than
    pieces."""
    return (problem.bytes > limits.ACCELERATOR_DEFINITION_BYTES and problem.is_reduced
            and any(term.reads_queries for term in problem.terms) and has_writers(problem))


def has_writers(problem: Problem) -> bool:
    """Whether pieces can run all of it."""
    return all(term.has_writer for term in problem.terms)


def fits_flex(problem: Problem) -> bool:
    """Whether FlexAttention can run all of it; what its backward pass adds to look-ups comes in any
    order."""
    return (problem.dropout_p == 0.0 and problem.attn_mask is None and problem.regions is None
            and has_triton() and not torch.are_deterministic_algorithms_enabled()
            and all(term.has_score_mod for term in problem.terms)
            and refusal(*split(problem.qkv)[:2], problem.terms) is None)


@cache
def has_triton() -> bool:
    """Whether FlexAttention can be compiled for a GPU here."""
    return importlib.util.find_spec('triton') is not None


def _adds_bias(terms: Sequence[Term]) -> bool:
    return all(isinstance(term, OffsetBias | DenseBias) for term in terms)
