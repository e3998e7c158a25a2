"""Reading look-ups, and adding up their gradients, by an index of all pairs: for short sequences.

On long ones :mod:`.runs` copies whole rows of keys; on short ones those are too short for it.
"""
from __future__ import annotations

import torch
from torch import Tensor

from ..buckets import Buckets
from ..grid_cache import CACHE
from .layout import Kept, Layout, Piece


class PairIndex:
    """Where each pair of a query and a key finds its bucket in the look-ups of the queries, or with
    ``by_key`` of the keys. The other way of :class:`~.runs.Runs`, with the same methods."""

    def __init__(self, buckets: Buckets, layout: Layout, by_key: bool, device: torch.device
                 ) -> None:
        self.buckets, self.layout, self.by_key = buckets, layout, by_key
        self.device = device
        self._kept: Kept[Tensor] = Kept()

    def expand(self, lookup: Tensor) -> Tensor:
        """Look-ups of all keys as :meth:`read` takes them."""
        return lookup

    def read(self, lookup: Tensor, piece: Piece, out: Tensor) -> None:
        """Write the number of every pair.

        Args:
            lookup: (heads, tokens, buckets) of the piece's queries, or of all keys.
            out: (heads, queries, keys).
        """
        index = self._index(piece.queries, 1).expand(out.shape[0], -1)
        torch.gather(lookup.flatten(1), 1, index, out=out.view(out.shape[0], -1))

    def sums(self, logits: Tensor, piece: Piece) -> Tensor:
        """The adjoint of :meth:`read`: (heads, queries, keys) to (heads, tokens, buckets).

        Neighbours often share a bucket, and each addition would wait for the one before: they are
        added up in two halves in turn, a fourth faster.
        """
        heads, queries, keys = logits.shape
        tokens, num = keys if self.by_key else queries, self.buckets.num
        sums = logits.new_zeros(heads, tokens * 2 * num)
        index = self._index(piece.queries, 2).expand(heads, -1)
        sums.scatter_add_(1, index, logits.reshape(heads, -1))
        even, odd = sums.view(heads, tokens, 2, num).unbind(2)
        return even + odd

    def contract(self, sums: Tensor) -> Tensor:
        """The adjoint of :meth:`expand`."""
        return sums

    def _index(self, queries: slice, halves: int) -> Tensor:
        """(1, queries * keys) places in look-ups of ``halves`` times the buckets."""
        def make() -> Tensor:
            if queries != slice(0, self.layout.len_q):
                return self._places(queries, halves)
            key = ('places', self.buckets, self.layout.filled, self.by_key, halves, self.device)
            return CACHE.get(key, lambda: self._places(queries, halves), lambda found: [found])

        return self._kept.get((queries.start, queries.stop, halves), make, Tensor.numel)

    def _places(self, queries: slice, halves: int) -> Tensor:
        ids = self.layout.arrange(self.buckets.ids(self.device, queries), -1).contiguous()
        query = torch.arange(ids.shape[0], device=self.device)[:, None] * self.buckets.num
        key = torch.arange(ids.shape[1], device=self.device) * self.buckets.num
        reader, other = (key, query) if self.by_key else (query, key)
        # In place: an index is as large as all logits of a head, twice over.
        ids += reader * halves
        ids += other % (halves * self.buckets.num)
        return ids.view(1, -1)
