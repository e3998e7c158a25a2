"""The terms that relative encodings add to attention, each with its reference: the same over all
pairs. This file has the terms by bucket, and vector_terms.py has the others. A term that only one
encoding uses is defined in the file of that encoding.

A term says what is added, not how it is computed. :mod:`.fast` has faster implementations for types
of terms; other types are computed by their reference.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..functional.buckets import Buckets
from ..functional.extents import MaskLike
from ..functional.grids import Grid


class Term:
    """The base class of all that an encoding adds to attention. Queries ``q`` (B, heads, Lq,
    head_dims) are scaled, keys ``k`` (B, heads, Lk, head_dims) are not; both start with their
    prefix tokens. Tables are ([heads], ...): if the first dimension is missing or 1, all heads
    share them."""

    #: True for terms of the output instead of the logits.
    on_values = False
    #: False for terms of the output that do not depend on the attention weights.
    reads_weights = True
    #: True if the term depends on the queries, or on the keys, and not only on the grids.
    reads_queries = False
    reads_keys = False

    def reference(self, q: Tensor, k: Tensor) -> Tensor:
        """The reference of a term of the logits: what is added to them, (B or 1, heads or 1, Lq,
        Lk)."""
        raise NotImplementedError

    def output_of_weights(self, weights: Tensor) -> Tensor:
        """The reference of a term of the output: what is added to it, (B, heads, Lq, head_dims),
        given the attention weights."""
        raise NotImplementedError

    def within(self, regions: Tensor | None) -> Term:
        """The same term where tokens only see those of their region (see :class:`Problem`). Terms
        in which tokens other than the pair take part override it."""
        return self

    def output(self, q: Tensor, v: Tensor, padding: Tensor | None, regions: Tensor | None
               ) -> Tensor:
        """The reference of a term of the output without attention weights, from queries and values
        (B, heads, L, head_dims) and the masks of a :class:`Problem`."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class DenseBias(Term):
    """bias (B or 1, heads or 1, Lq or 1, Lk)."""

    bias: Tensor

    def reference(self, q: Tensor, k: Tensor) -> Tensor:
        """The bias itself, for any queries and keys."""
        return self.bias


@dataclass(frozen=True, eq=False)
class Table(Term):
    """The base class of vectors by the bucket of a pair (iRPE, Shaw, Huang): table ([heads],
    head_dims, buckets), or ([heads], buckets, head_dims) for values."""

    table: Tensor
    buckets: Buckets


class TableByQuery(Table):
    """q_i . table[b(i, j)]."""

    reads_queries = True

    def reference(self, q: Tensor, k: Tensor) -> Tensor:
        """The products of each query with the vectors of its pairs."""
        return gather_buckets(q @ self.table.to(q.dtype), self.buckets.stored_ids(q.device))


class TableByKey(Table):
    """k_j . table[b(i, j)]; a scale of the keys is included in the table."""

    reads_keys = True

    def reference(self, q: Tensor, k: Tensor) -> Tensor:
        """The products of each key with the vectors of its pairs."""
        ids = self.buckets.stored_ids(k.device)
        return gather_buckets(k @ self.table.to(k.dtype), ids.t()).transpose(-2, -1)


class TableOnValues(Table):
    """sum_j a_ij table[b(i, j)], computed by summing the weights of each bucket first."""

    on_values = True

    def output_of_weights(self, weights: Tensor) -> Tensor:
        """The sum of the vectors of all pairs of a query, by their weights."""
        ids = self.buckets.stored_ids(weights.device)
        sums = bucket_sums(weights, ids, self.buckets.num_all)
        return sums @ self.table.to(weights.dtype)


def gather_buckets(lookup: Tensor, ids: Tensor) -> Tensor:
    """Read lookup (B, heads, Lq, buckets) at ids (Lq, Lk): the result (B, heads, Lq, Lk) has
    lookup[..., i, ids[i, j]].

    The gradient of an entry is a sum over many pairs, which half precision would round at each
    step (and add far slower on a GPU): where there is one, it is added up in float32."""
    ids = ids.expand(*lookup.shape[:2], *ids.shape)
    if lookup.requires_grad and torch.is_grad_enabled() and lookup.element_size() < 4:
        return lookup.float().gather(-1, ids).to(lookup.dtype)
    return lookup.gather(-1, ids)


def bucket_sums(weights: Tensor, ids: Tensor, num_buckets: int) -> Tensor:
    """Add up the weights (B, heads, Lq, Lk) of each bucket, the adjoint of :func:`gather_buckets`:
    (B, heads, Lq, num_buckets). The sums are made in float32 at least."""
    dtype = torch.promote_types(weights.dtype, torch.float32)
    sums = torch.zeros(*weights.shape[:3], num_buckets, dtype=dtype, device=weights.device)
    ids = ids.expand(*weights.shape[:2], *ids.shape)
    return sums.scatter_add(-1, ids, weights.to(dtype)).to(weights.dtype)


class Problem(NamedTuple):
    """One attention, the input of every implementation.

    Attributes:
        q, k, v: q (B, heads, Lq, head_dims), rotated, not scaled; k, v (B, heads, Lk, head_dims).
        scale: the factor of the queries.
        terms: the terms of the encodings.
        query, key, prefix: grids of the cells, and number of prefix tokens, with an encoding.
        key_padding: (B, Lk) bool, True = padding; every image has a valid key.
        query_padding: (B, Lq) bool, True = padding, to find the grid of each image.
        attn_mask: (B or 1, heads or 1, Lq or 1, Lk) bool, True = may attend.
        regions: (n, L) whole numbers, row b % n for image b; tokens attend only to tokens with
            their own number.
        tokens: (B, Lq, embed_dims) that queries are projections of, for an encoding.
        dropout_p: dropout rate of the weights.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    scale: float
    terms: Sequence[Term] = ()
    query: Grid | None = None
    key: Grid | None = None
    prefix: int = 0
    key_padding: Tensor | None = None
    query_padding: MaskLike | None = None
    attn_mask: Tensor | None = None
    regions: Tensor | None = None
    tokens: Tensor | None = None
    dropout_p: float = 0.0

    @property
    def pairs(self) -> int:
        """The number of pairs of a query and a key in one head."""
        return int(self.q.shape[2] * self.k.shape[2])

    @property
    def logits_bytes(self) -> int:
        """The bytes of the logits of all heads and images."""
        return self.q.shape[:2].numel() * self.pairs * self.q.element_size()

    @property
    def on_cpu(self) -> bool:
        """Whether the tensors are on a CPU."""
        return self.q.device.type == 'cpu'

    @property
    def is_trained(self) -> bool:
        """Whether the attention needs a gradient."""
        tensors = [self.q, self.k, self.v, *(
            x for term in self.terms for x in vars(term).values() if isinstance(x, Tensor))]
        return torch.is_grad_enabled() and any(x.requires_grad for x in tensors)

    @property
    def grids(self) -> tuple[Grid, Grid]:
        """The grids of queries and keys; an attention with an encoding always has them."""
        assert self.query is not None and self.key is not None
        return self.query, self.key

    def mask(self, bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
        """A bias with all masks, to be added to the logits; without a bias bool (True = attend)."""
        keep = self.attn_mask
        if self.key_padding is not None:
            valid = ~self.key_padding[:, None, None]
            keep = valid if keep is None else keep & valid
        if self.regions is not None:
            same = pairs_of_one_region(self.regions)
            same = same.repeat(self.q.shape[0] // same.shape[0], 1, 1)[:, None]
            keep = same if keep is None else keep & same
        if keep is None or bias is None:
            return keep if bias is None else bias.to(dtype)
        return bias.to(dtype).masked_fill(~keep, float('-inf'))


def pairs_of_one_region(regions: Tensor) -> Tensor:
    """Which pairs of tokens have the same region: (windows, L) -> (windows, L, L) bool."""
    return regions[:, :, None] == regions[:, None, :]
