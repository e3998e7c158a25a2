"""Base of the encodings with learned vectors of clipped offsets (Shaw, Huang)."""
from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..functional.buckets import add_prefix_bucket
from ..functional.grid_cache import CACHE
from ..functional.grids import Grid, GridLike, as_grid, key_grid
from ..functional.head_tables import by_head
from ..functional.indexed_attention import PairIndex, indexed_attention, pair_index
from ..functional.offset_index import pair_ids, sequence_index
from .axis_encoding import check_sizes
from .base import RelativeEncoding
from .chunked_tables import attend_tables, is_worth_chunking

_METHODS = ('product', 'sequence')


class ClippedVectors(NamedTuple):
    """Tables ([heads], n, head_dims) that meet queries and keys, and those added to values."""

    with_query: Tensor | None = None
    with_key: Tensor | None = None
    with_weights: Tensor | None = None


class ClippedTables(RelativeEncoding):
    """Vectors by clip(key minus query), on a grid ('product': rows and columns each) or on the
    flattened sequence ('sequence').

    Forms: 'chunked' (for 'product') a few query rows at a time, and 'indexed', some heads at a
    time by an index of all pairs, which wins on short sequences.
    """

    def __init__(self, head_dims: int, num_heads: int, max_offset: int, method: str,
                 shared_heads: bool, num_prefix_tokens: int) -> None:
        super().__init__()
        check_sizes(head_dims, num_heads, num_prefix_tokens)
        if max_offset < 0:
            raise ValueError(f'max_offset={max_offset} must be >= 0')
        if method not in _METHODS:
            raise ValueError(f"method={method!r} must be 'product' or 'sequence'")
        self.head_dims, self.num_heads = head_dims, num_heads
        self.max_offset, self.method = max_offset, method
        self.shared_heads = shared_heads
        self.num_prefix_tokens = num_prefix_tokens
        self.cellwise = method == 'product'
        self.forms = ('chunked', 'indexed') if method == 'product' else ('indexed',)
        width = 2 * max_offset + 1
        #: Vectors of a table; with 'product' that of pairs with a prefix token is the last.
        self.num_vectors = width if method == 'sequence' else width ** 2 + (num_prefix_tokens > 0)

    def _new_table(self) -> nn.Parameter:
        """An uninitialized table (n, head_dims), or one a head."""
        lead = () if self.shared_heads else (self.num_heads,)
        return nn.Parameter(torch.empty(*lead, self.num_vectors, self.head_dims))

    def reset_parameters(self) -> None:
        """Truncated normal, standard deviation 0.02."""
        for table in self.parameters():
            nn.init.trunc_normal_(table, std=0.02)

    @abstractmethod
    def _vectors(self) -> ClippedVectors:
        """The tables; the one that meets keys with the keys' own scale in it."""

    def choose_form(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
                    ) -> str:
        """On a CPU 'chunked' for many pairs, where the method has it, and 'indexed' for few."""
        if q.device.type != 'cpu' or torch.compiler.is_compiling():
            return 'definition'
        if not is_worth_chunking(q, k):
            return 'indexed'
        return 'chunked' if 'chunked' in self.forms else 'definition'

    def attend(self, q: Tensor, k: Tensor, v: Tensor, q_grid: GridLike,
               k_grid: GridLike | None = None, key_padding_mask: Tensor | None = None, *,
               form: str, scale: float = 1.0) -> Tensor:
        """The whole attention; see :class:`RelativeEncoding`."""
        query, key = as_grid(q_grid, 'q_grid'), key_grid(q_grid, k_grid)
        if form == 'chunked':
            return attend_tables(q, k, v, query, key, self.max_offset,
                                 num_prefix_tokens=self.num_prefix_tokens,
                                 key_padding_mask=key_padding_mask, scale=scale,
                                 **self._vectors()._asdict())
        with torch.autocast(q.device.type, enabled=False):
            rows, padding = by_head(q, k, v, key_padding_mask)
            with_query, with_key, with_weights = (
                None if x is None else x.to(rows[0].dtype).expand(
                    1 if x.dim() == 2 else -1, -1, -1) for x in self._vectors())
            index = PairIndex(
                () if with_query is None and with_weights is None else (
                    self._places(query, key, False, q.device),),
                () if with_key is None else (self._places(query, key, True, q.device),))
            out = indexed_attention(
                *rows, index, padding=padding, scale=scale, table_v=with_weights,
                table_k=None if with_query is None else with_query.transpose(1, 2) * scale,
                table_q=None if with_key is None else with_key.transpose(1, 2))
        return out.view(q.shape).to(v.dtype)

    def _places(self, query: Grid, key: Grid, by_key: bool, device: torch.device) -> Tensor:
        """Where each pair finds its vector among the products of its query, or of its key."""
        def make() -> Tensor:
            ids = self._pair_ids(query, key, device)
            return pair_index(ids.t() if by_key else ids, self.num_vectors, by_key)

        key_of_all = ('clipped', self.method, self.max_offset, self.num_prefix_tokens, query, key,
                      by_key, device)
        return CACHE.get(key_of_all, make, lambda found: [found])

    def _ids(self, q_grid: GridLike, k_grid: GridLike | None, device: torch.device) -> Tensor:
        return self._pair_ids(as_grid(q_grid, 'q_grid'), key_grid(q_grid, k_grid), device)

    def _pair_ids(self, query: Grid, key: Grid, device: torch.device) -> Tensor:
        """Row of a table for each pair (Lq, Lk), prefix tokens included."""
        limit, prefix = self.max_offset, self.num_prefix_tokens
        if self.method == 'sequence':
            return sequence_index(query, key, prefix, limit, device)
        ids = pair_ids(query, key, (limit, limit), device)
        return add_prefix_bucket(ids, prefix, (2 * limit + 1) ** 2)
