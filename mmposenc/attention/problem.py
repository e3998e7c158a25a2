"""One attention, as the engines take it."""
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..functional import limits
from ..functional.attention.driver import split
from ..functional.attention.terms import Term
from ..functional.grids import Grid


class Problem(NamedTuple):
    """One attention.

    Attributes:
        qkv: q (B, heads, Lq, head_dims), rotated, not scaled; k, v (B, heads, Lk, head_dims). Or
            all three in one tensor (B, L, 3, heads, head_dims).
        terms: what encodings add.
        query, key, prefix: grids of the cells and tokens in front of them, if there are terms.
        key_padding: (B, Lk) bool, True = padding; every image has a valid key.
        attn_mask: bool, True = may attend, broadcastable to (B, heads, Lq, Lk).
        regions: (n, L) whole numbers, image b has those of b % n; tokens meet within one number.
        dropout_p: of the weights.
    """

    qkv: tuple[Tensor, ...]
    terms: Sequence[Term] = ()
    query: Grid | None = None
    key: Grid | None = None
    prefix: int = 0
    key_padding: Tensor | None = None
    attn_mask: Tensor | None = None
    regions: Tensor | None = None
    dropout_p: float = 0.0

    @property
    def scale(self) -> float:
        """Of the queries."""
        return float(self.qkv[0].shape[-1] ** -0.5)

    @property
    def trains(self) -> bool:
        """Whether a gradient is wanted."""
        tensors = [*self.qkv, *(x for term in self.terms for x in vars(term).values()
                                if isinstance(x, Tensor))]
        return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)

    @property
    def pairs(self) -> int:
        """Of queries and keys of one head."""
        q, k, _ = split(self.qkv)
        return q.shape[2] * k.shape[2]

    @property
    def bytes(self) -> int:
        """Of the logits of all heads of all images."""
        q, _, _ = split(self.qkv)
        return q.shape[0] * q.shape[1] * self.pairs * q.element_size()

    @property
    def is_reduced(self) -> bool:
        """Whether keys are far fewer than queries."""
        q, k, _ = split(self.qkv)
        return q.shape[2] >= limits.REDUCED_FROM * k.shape[2]

    @property
    def on_cpu(self) -> bool:
        """Whether it is computed on a CPU."""
        return self.qkv[0].device.type == 'cpu'
