"""Numbers of one attention by which an implementation is chosen and cut, and the error where it
cannot compute a term."""
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..terms import Problem, Term


def is_trained(problem: Problem) -> bool:
    """Whether the attention needs a gradient."""
    tensors = [problem.q, problem.k, problem.v]
    for term in problem.terms:
        tensors += [x for x in vars(term).values() if isinstance(x, Tensor)]
    return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)


def pairs_of(problem: Problem) -> int:
    """The number of pairs of a query and a key in one head."""
    return problem.q.shape[2] * problem.k.shape[2]


def logits_bytes(problem: Problem) -> int:
    """The bytes of the logits of all heads and images."""
    q = problem.q
    return q.shape[:3].numel() * problem.k.shape[2] * q.element_size()


def on_cpu(problem: Problem) -> bool:
    """Whether the tensors are on a CPU."""
    return problem.q.device.type == 'cpu'


def refuse_uncomputed(implementation: str, uncomputed: Sequence[Term]) -> None:
    """Refuse terms that an implementation has no way to compute, if there are any.

    Raises:
        ValueError: naming their kinds.
    """
    if uncomputed:
        names = ', '.join(sorted({type(term).__name__ for term in uncomputed}))
        raise ValueError(f"implementation={implementation!r} cannot compute terms of the kind "
                         f"{names}; use 'auto', 'chunked' or 'reference'")
