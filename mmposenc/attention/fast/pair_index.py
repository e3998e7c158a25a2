"""Reading look-ups by an index of every pair of a query and a key: for short sequences."""
from __future__ import annotations

import torch
from torch import Tensor

from mmposenc.functional.buckets import Buckets
from mmposenc.functional.grids import GridCache, stored

from . import thresholds
from .layout import Chunk
from .writers import ChunkWork


class PairIndex:
    """Reads the look-ups of queries, or with ``by_key`` those of keys, by an index of pairs: a
    :class:`~.bucket_writer.Reader`."""

    def __init__(self, buckets: Buckets, by_key: bool, dtype: torch.dtype, device: torch.device
                 ) -> None:
        self.buckets, self.by_key, self.device = buckets, by_key, device
        self.all_queries = slice(0, buckets.prefix + buckets.query.num_cells)
        self._indices = GridCache(thresholds.INDEX_BYTES)

    def expand(self, lookup: Tensor, lead: int) -> list[Tensor]:
        """The look-ups as they are."""
        return [lookup]

    def write(self, expanded: list[Tensor], work: ChunkWork, logits: Tensor, add: bool) -> None:
        """Copy the number of every pair out of the look-ups."""
        out = work.other if add else logits
        index = self._flat_lookup_index(work.chunk.queries, 1).expand(len(out), -1)
        torch.gather(expanded[0].flatten(1), 1, index, out=out.view(len(out), -1))
        if add:
            logits += out

    def sums(self, logits: Tensor, chunk: Chunk) -> list[Tensor]:
        """The adjoint of :meth:`write`. Neighbours often share a bucket, and each addition would
        wait for the one before: they are added up in two halves in turn, a fourth faster."""
        heads, queries, keys = logits.shape
        tokens, num = keys if self.by_key else queries, self.buckets.num_all
        sums = logits.new_zeros(heads, tokens * 2 * num)
        index = self._flat_lookup_index(chunk.queries, 2).expand(heads, -1)
        sums.scatter_add_(1, index, logits.reshape(heads, -1))
        even, odd = sums.view(heads, tokens, 2, num).unbind(2)
        return [even + odd]

    def collect(self, sums: list[Tensor], heads: int, lead: int) -> Tensor:
        """The sums as they are."""
        return sums[0]

    def _flat_lookup_index(self, queries: slice, halves: int) -> Tensor:
        """Index (1, queries * keys) of every pair in look-ups that are ``halves`` times as long as
        the number of buckets."""
        def make_index() -> Tensor:
            if queries != self.all_queries:
                return self._lookup_places(queries, halves)
            return stored(('pairs', self.buckets, self.by_key, halves),
                          lambda: self._lookup_places(queries, halves), self.device)

        return self._indices.get_or_make((queries.start, queries.stop, halves), make_index)

    def _lookup_places(self, queries: slice, halves: int) -> Tensor:
        ids = self.buckets.ids(self.device, queries).contiguous()
        query = torch.arange(ids.shape[0], device=self.device)[:, None] * self.buckets.num_all
        key = torch.arange(ids.shape[1], device=self.device) * self.buckets.num_all
        reader, other = (key, query) if self.by_key else (query, key)
        # Changed in place, because an index takes twice the memory of all logits of a head.
        ids += reader * halves
        ids += other % (halves * self.buckets.num_all)
        return ids.view(1, -1)
