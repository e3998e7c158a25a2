"""``F.scaled_dot_product_attention`` with terms as its mask."""
from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from ..terms import DenseBias, Problem, Term
from ..vector_terms import OffsetBias


def fits_attn_mask(term: Term) -> bool:
    """Whether a term is numbers that depend only on the grids, so that they can be added as a mask.
    """
    return isinstance(term, OffsetBias | DenseBias)


def sdpa(problem: Problem) -> Tensor:
    """softmax(q k^T * scale + terms) v by PyTorch's kernels, for terms that are masks."""
    q, k, v = problem.q, problem.k, problem.v
    biases = [term.reference(q, k) for term in problem.terms]
    bias = sum(biases[1:], biases[0]) if biases else None
    return F.scaled_dot_product_attention(q, k, v, attn_mask=problem.mask(bias, q.dtype),
                                          dropout_p=problem.dropout_p, scale=problem.scale)
