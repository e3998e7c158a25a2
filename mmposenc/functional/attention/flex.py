"""Terms as score_mods of FlexAttention: look-ups are read inside its kernel."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from .sequence_terms import KeyVectors, SkewedTable
from .terms import Term


def has_score_mod(term: Term) -> bool:
    """Whether the term has one: terms of the output have none, and those of a sequence none that
    would save memory."""
    return not (term.on_values or isinstance(term, SkewedTable | KeyVectors))


def flex_attention(q: Tensor, k: Tensor, v: Tensor, terms: Sequence[Term],
                   key_padding: Tensor | None = None) -> Tensor:
    """softmax(q k^T + terms) v.

    Args:
        q: (B, heads, Lq, head_dims), scaled; k, v: (B, heads, Lk, head_dims).
        terms: those that :func:`has_score_mod`.
        key_padding: (B, Lk) bool, True = padding: blocks of padded keys are skipped.

    Returns:
        (B, heads, Lq, head_dims). On a CPU not compiled, to be compared with: it builds all pairs.
    """
    from torch.nn.attention.flex_attention import create_block_mask
    mods = [term.score_mod(q, k) for term in terms]

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        for mod in mods:
            assert mod is not None
            score = score + mod(b, h, i, j)
        return score

    mask = None
    if key_padding is not None:
        valid = ~key_padding
        mask = create_block_mask(lambda b, h, i, j: valid[b, j], q.shape[0], None, q.shape[2],
                                 k.shape[2], device=q.device)
    run = _compiled() if q.device.type != 'cpu' else _eager()
    out: Tensor = run(q, k, v, score_mod=score_mod, block_mask=mask, scale=1.0)
    return out


@cache
def _compiled() -> Callable[..., Any]:
    return torch.compile(_eager(), dynamic=True)


def _eager() -> Callable[..., Any]:
    from torch.nn.attention.flex_attention import flex_attention as flex
    return flex
