"""Which form is fastest, by what it can compute and by :mod:`mmposenc.functional.limits`."""
from __future__ import annotations

import torch

from mmposenc.functional import limits
from mmposenc.functional.linear import onednn_is_faster

from ..terms import KeyVectors, Problem, split
from . import flex
from .fused import is_mask
from .sizes import bytes_of, is_reduced, is_trained, on_cpu, pairs_of
from .writers import has_writer


def fold_vectors(problem: Problem) -> Problem:
    """The problem with vectors that only queries meet added to the keys, where no other term reads
    those."""
    vectors = [term.vectors for term in problem.terms if isinstance(term, KeyVectors)]
    if not vectors or any(term.reads_keys for term in problem.terms):
        return problem
    q, k, v = split(problem.qkv)
    for each in vectors:
        k = k + each.to(k.dtype)
    return problem._replace(qkv=(q, k, v), terms=[
        term for term in problem.terms if not isinstance(term, KeyVectors)])


def fastest(problem: Problem) -> str:
    """The form that is fastest, of those that can compute it and hold in memory."""
    is_plain = not problem.terms and problem.dropout_p == 0.0
    small = limits.DEFINITION_BYTES if on_cpu(problem) else limits.ACCELERATOR_DEFINITION_BYTES
    as_defined = bytes_of(problem) <= small or not all(has_writer(x) for x in problem.terms)
    if not on_cpu(problem):
        if not as_defined and _has_many_look_ups(problem):
            return 'pieces'
        if is_plain:
            return 'fused'
        if as_defined:
            return 'definition'
        many = pairs_of(problem) >= limits.FLEX_FROM
        return 'flex' if many and flex.fits(problem) else 'pieces'
    if as_defined:
        return 'definition'
    trains = is_trained(problem)
    if is_plain and (problem.regions is None or not trains):
        return 'pieces' if problem.regions is None and _plain_pieces_pay(problem) else 'fused'
    few = pairs_of(problem) < limits.MASK_BELOW and not trains and problem.dropout_p == 0.0
    return 'fused' if few and all(is_mask(term) for term in problem.terms) else 'pieces'


def _has_many_look_ups(problem: Problem) -> bool:
    """Whether queries are so many that what other forms look up for each of them weighs more than
    pieces."""
    return is_reduced(problem) and any(term.reads_queries for term in problem.terms)


def _plain_pieces_pay(problem: Problem) -> bool:
    q, k, _ = split(problem.qkv)
    if k.shape[2] < limits.PLAIN_PIECES_KEYS:
        return False
    if q.dtype == torch.bfloat16:
        return pairs_of(problem) >= limits.PLAIN_HALF_FROM
    return (q.dtype == torch.float32 and pairs_of(problem) >= limits.PLAIN_PIECES_FROM
            and onednn_is_faster())
