"""One attention of all images together, in any implementation: rotations, the choice of the
implementation, and the reference that all must equal."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from ..functional.tracing import is_exporting, is_transforming, may_branch_on
from .fast.choice import fastest_implementation, with_terms_folded
from .fast.chunked import chunked
from .fast.sdpa import fits_attn_mask, sdpa
from .fast.term_writers import has_writer
from .masks import open_blocked_queries
from .terms import Problem, Term

if TYPE_CHECKING:
    from ..encodings.base import RelativeEncoding


def output_and_weights(problem: Problem, encoding: RelativeEncoding | None,
                       implementation: str = 'auto', need_weights: bool = False
                       ) -> tuple[Tensor, Tensor | None]:
    """The output of an attention, and its weights if they are needed: rotations, the weighted sum
    with the terms that take part in it, then the terms that do not.

    Args:
        problem: the attention, without terms; with an encoding, with grids.
        encoding: the encoding, or None.
        implementation: the requested implementation, or 'auto'.
        need_weights: whether the weights are a result, too.
    """
    of_values: list[Term] = []  # Terms that add to the output whatever the attention weights are.
    rotation = None if encoding is None else encoding.rotation
    if encoding is not None:
        grids = problem.grids
        if rotation is not None:
            v = rotation.turn_values(problem.v, *grids)
            q, k = rotation.rotate(problem.q, problem.k, *grids)
            problem = problem._replace(q=q, k=k, v=v)
        terms = [term.within(problem.regions) for term in encoding.terms(*grids, problem.tokens)]
        of_values = [term for term in terms if not term.reads_weights]
        problem = problem._replace(terms=[term for term in terms if term.reads_weights])
    without_keys = None
    if problem.attn_mask is not None or problem.regions is not None:
        problem, without_keys = open_blocked_queries(problem)
    out, weights = _weighted_values(problem, implementation, need_weights)
    if rotation is not None:
        out = rotation.turn_back(out, *problem.grids)
    for term in of_values:
        out = out + term.output(problem.q, problem.v, problem.key_padding, problem.regions)
    if without_keys is not None:
        out = out.masked_fill(without_keys, 0.0)
        weights = None if weights is None else weights.masked_fill(without_keys, 0.0)
    return out, weights


def _weighted_values(problem: Problem, implementation: str, need_weights: bool
                     ) -> tuple[Tensor, Tensor | None]:
    """The weighted sum of values, and the weights if they are needed.

    Raises:
        ValueError: the implementation cannot compute a term.
    """
    if need_weights:
        return reference(problem, need_weights)
    folded = problem if implementation == 'reference' else with_terms_folded(problem)
    chosen = chosen_implementation(folded, implementation)
    compute, can_compute = _COMPUTE[chosen]
    uncomputed = {type(term).__name__ for term in folded.terms if not can_compute(term)}
    if uncomputed:
        raise ValueError(f"implementation={chosen!r} cannot compute terms of the kind "
                         f"{', '.join(sorted(uncomputed))}; use 'auto', 'chunked' or 'reference'")
    out = compute(folded)
    return out if folded is problem else out[..., :problem.v.shape[-1]], None


def chosen_implementation(problem: Problem, implementation: str) -> str:
    """The implementation to run. It is the reference where a program is exported, which does not
    know the sizes of chunks; where it is compiled, which fuses look-ups by itself; on the meta
    device, where operations are counted; and under ``torch.func``, which transforms nothing else.
    """
    if is_exporting() or is_transforming():
        return 'reference'
    if implementation == 'sdpa' and not sdpa_supports(problem):
        return 'reference'
    if implementation != 'auto':
        return implementation
    return fastest_implementation(problem) if may_branch_on(problem.q) else 'reference'


def reference(problem: Problem, need_weights: bool = False) -> tuple[Tensor, Tensor | None]:
    """Attention by all logits (B, heads, Lq, Lk); the other implementations must equal it."""
    q, k, v = problem.q, problem.k, problem.v
    of_logits = [term for term in problem.terms if not term.on_values]
    scaled = q * problem.scale if of_logits else q
    logits = [term.reference(scaled, k) for term in of_logits]
    on_values = [term for term in problem.terms if term.on_values]
    bias = problem.mask(sum(logits[1:], logits[0]) if logits else None, q.dtype)
    if not (need_weights or on_values) and use_sdpa(bias, problem):
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=bias, dropout_p=problem.dropout_p, scale=problem.scale), None
    scaled = scaled if of_logits else q * problem.scale
    scores = scaled @ k.transpose(-2, -1)  # (B, heads, Lq, Lk)
    if bias is not None:
        scores = (scores.masked_fill(~bias, float('-inf')) if bias.dtype == torch.bool
                  else scores + bias)
    weights = scores.softmax(-1).to(v.dtype)
    if problem.dropout_p > 0.0:
        weights = F.dropout(weights, problem.dropout_p)
    out = weights @ v  # (B, heads, Lq, head_dims)
    for term in on_values:
        out = out + term.output_of_weights(weights)
    return out, weights if need_weights else None


def use_sdpa(bias: Tensor | None, problem: Problem) -> bool:
    """Whether to use SDPA: on a CPU it is slow for a mask that needs a gradient, and for any
    gradient in bfloat16."""
    if problem.on_cpu:
        trains_half = problem.q.dtype == torch.bfloat16 and problem.is_trained
        return not (trains_half or (bias is not None and bias.requires_grad))
    return bias is None or not bias.requires_grad or sdpa_supports(problem)


def sdpa_supports(problem: Problem) -> bool:
    """Whether SDPA has a backward pass. That of its kernels on a GPU reads what the forward pass
    keeps only where q, k or v needs a gradient, and fails where the mask alone needs one, as in
    frozen blocks whose encodings are trained."""
    return problem.on_cpu or not problem.is_trained or any(
        x.requires_grad for x in (problem.q, problem.k, problem.v))


#: The implementations, and which terms each of them can compute.
_COMPUTE: dict[str, tuple[Callable[[Problem], Tensor], Callable[[Term], bool]]] = {
    'reference': (lambda problem: reference(problem)[0], lambda term: True),
    'sdpa': (sdpa, fits_attn_mask), 'chunked': (chunked, has_writer)}
#: The names that ``implementation`` may have.
IMPLEMENTATIONS = ('auto', *_COMPUTE)


def checked_implementation(implementation: str) -> str:
    """The implementation, after a check.

    Raises:
        ValueError: there is no such implementation.
    """
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f'implementation={implementation!r} must be one of '
                         f'{", ".join(IMPLEMENTATIONS)}')
    return implementation
