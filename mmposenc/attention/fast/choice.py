"""Which implementation is fastest, by what each can compute and by the thresholds of
:mod:`mmposenc.attention.fast.thresholds`."""
from __future__ import annotations

import torch
import torch.nn.functional as F

from mmposenc.functional.linear import onednn_halves_time

from ..terms import Problem
from ..vector_terms import Channels, VectorsAddedToKeys
from . import thresholds
from .sdpa import fits_attn_mask
from .term_writers import has_writer


def with_terms_folded(problem: Problem) -> Problem:
    """Move terms into queries and keys where that is possible: vectors that only queries meet are
    added to the keys, and the channels of terms are appended to those of queries and keys, if no
    other term uses these. Values then get as many channels of zeros, because fused kernels want one
    number of channels.
    """
    vectors = [term.vectors for term in problem.terms if isinstance(term, VectorsAddedToKeys)]
    if vectors and not any(term.reads_keys for term in problem.terms):
        k = problem.k
        for each in vectors:
            k = k + each.to(k.dtype)
        problem = problem._replace(k=k, terms=[
            term for term in problem.terms if not isinstance(term, VectorsAddedToKeys)])
    channels = [term for term in problem.terms if isinstance(term, Channels)]
    if not channels or any(term.reads_queries or term.reads_keys or term.on_values
                           for term in problem.terms):
        return problem
    more = [term.channels_to_append(problem.q, problem.k, problem.scale) for term in channels]
    count = sum(queries.shape[-1] for queries, _ in more)
    # Kernels of GPUs want the number of channels to be a multiple of 8.
    fill = (0, -(problem.q.shape[-1] + count) % 8)
    q, k = (F.pad(torch.cat((x, *each), -1), fill)
            for x, each in zip((problem.q, problem.k), zip(*more, strict=True), strict=True))
    return problem._replace(
        q=q, k=k, v=F.pad(problem.v, (0, q.shape[-1] - problem.v.shape[-1])),
        terms=[term for term in problem.terms if not isinstance(term, Channels)])


def fastest_implementation(problem: Problem) -> str:
    """Choose the fastest implementation among those that can compute the problem within memory.

    On an accelerator scaled_dot_product_attention has the terms as its mask and chooses among its
    kernels, unless all pairs would be large.
    """
    on_gpu = not problem.on_cpu
    if on_gpu and not problem.terms:
        return 'sdpa'
    only_in_chunks = problem.dropout_p > 0.0 or problem.regions is not None
    if not (problem.terms or only_in_chunks):
        return 'chunked' if _plain_chunks_pay(problem) else 'sdpa'
    if (problem.logits_bytes <= reference_bytes(problem.q.device)
            or not all(has_writer(term) for term in problem.terms)
            # Keys that heads share, and values of other channels.
            or len({each.shape[1] for each in (problem.q, problem.k, problem.v)}) > 1
            or problem.q.shape[3] != problem.v.shape[3]):
        return 'reference'
    if (on_gpu or only_in_chunks or problem.is_trained or problem.q.dtype == torch.bfloat16
            or not all(fits_attn_mask(term) for term in problem.terms)):
        return 'chunked'
    most = thresholds.MASK_BELOW_ONEDNN if onednn_halves_time() else thresholds.MASK_BELOW
    return 'sdpa' if problem.pairs < most else 'chunked'


def reference_bytes(device: torch.device) -> float:
    """The bytes of all logits up to which the reference is the fastest that fits in memory."""
    if device.type == 'cpu':
        return thresholds.REFERENCE_BYTES
    if device.type != 'cuda':
        return thresholds.ACCELERATOR_REFERENCE_BYTES
    memory: int = torch.cuda.get_device_properties(device).total_memory
    return memory * thresholds.ACCELERATOR_REFERENCE_SHARE


def _plain_chunks_pay(problem: Problem) -> bool:
    pairs, many_keys = problem.pairs, problem.k.shape[2] >= thresholds.PLAIN_CHUNKS_KEYS
    if problem.q.dtype == torch.bfloat16:
        if problem.is_trained:
            return problem.logits_bytes > thresholds.PLAIN_TRAINED_BYTES
        return problem.logits_bytes > thresholds.REFERENCE_BYTES and (
            many_keys or pairs < thresholds.WINDOW_PAIRS)
    return (many_keys and problem.q.dtype == torch.float32
            and pairs >= thresholds.PLAIN_CHUNKS_FROM and onednn_halves_time())
