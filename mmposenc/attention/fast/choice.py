"""Which implementation is fastest, by what each can compute and by the thresholds of
:mod:`mmposenc.attention.fast.thresholds`."""
from __future__ import annotations

import torch

from mmposenc.functional.linear import onednn_is_faster

from ..terms import KeyVectors, Problem
from . import thresholds
from .sdpa import is_mask
from .sizes import bytes_of, is_trained, on_cpu, pairs_of
from .writers import has_writer


def fold_vectors(problem: Problem) -> Problem:
    """The problem with vectors that only queries meet added to the keys, where no other term reads
    those."""
    vectors = [term.vectors for term in problem.terms if isinstance(term, KeyVectors)]
    if not vectors or any(term.reads_keys for term in problem.terms):
        return problem
    k = problem.k
    for each in vectors:
        k = k + each.to(k.dtype)
    return problem._replace(k=k, terms=[
        term for term in problem.terms if not isinstance(term, KeyVectors)])


def fastest(problem: Problem) -> str:
    """The implementation that is fastest, of those that can compute it and hold in memory.

    On an accelerator scaled_dot_product_attention has the terms as its mask and chooses among its
    own kernels, unless all pairs would be large.
    """
    on_gpu, trains = not on_cpu(problem), is_trained(problem)
    no_dropout = problem.dropout_p == 0.0
    few = thresholds.ACCELERATOR_DEFINITION_BYTES if on_gpu else thresholds.DEFINITION_BYTES
    if on_gpu and not problem.terms:
        return 'sdpa'
    if bytes_of(problem) <= few or not all(has_writer(term) for term in problem.terms):
        return 'reference'
    if on_gpu:
        return 'chunked'
    if not problem.terms and no_dropout and problem.regions is None:
        return 'chunked' if _plain_chunks_pay(problem) else 'sdpa'
    if trains or not no_dropout or not all(is_mask(term) for term in problem.terms):
        return 'chunked'
    return 'sdpa' if not problem.terms or pairs_of(problem) < thresholds.MASK_BELOW else 'chunked'


def _plain_chunks_pay(problem: Problem) -> bool:
    if problem.k.shape[2] < thresholds.PLAIN_CHUNKS_KEYS:
        return False
    if problem.q.dtype == torch.bfloat16:
        return pairs_of(problem) >= thresholds.PLAIN_HALF_FROM
    return (problem.q.dtype == torch.float32 and pairs_of(problem) >= thresholds.PLAIN_CHUNKS_FROM
            and onednn_is_faster())
