"""Huang's relative encoding: the offset's vector meets both the query and the key."""
from __future__ import annotations

import torch
from torch import Tensor, nn

from ..functional.buckets import add_prefix_bucket
from ..functional.grids import GridLike, as_grid, key_grid
from ..functional.offset_index import pair_ids, sequence_index
from ..functional.offset_terms import lookup_logits
from .axis_encoding import check_sizes
from .base import RelativeEncoding
from .chunked_tables import attend_tables, is_worth_chunking

_METHODS = ('product', 'sequence')


class HuangRPE(RelativeEncoding):
    """q_i . a_ij + k_j . a_ij beside q_i . k_j, all under one scale: method 4 of "Improve
    Transformer Models with Better Relative Position Embeddings" (Huang et al., Findings of EMNLP
    2020, Sec. 3). With the offset's vector added to both sides it is
    (q_i + a_ij) . (k_j + a_ij) - a_ij . a_ij, the form in which iRPE compares with it.

    Args:
        head_dims: channels of a head.
        num_heads: attention heads.
        max_offset: offsets are clipped to it.
        method: 'product' gives each pair of a clipped row and column offset a vector; 'sequence'
            is the paper's own form on the flattened grid, prefix tokens included, where padding
            changes the result. As in :class:`ShawRPE`.
        shared_heads: one table for all heads, or one a head.
        num_prefix_tokens: tokens in front of the grid. With 'product' every pair with one of them
            has one further vector, the last of the table.

    Parameters: ``table`` (n, head_dims) by key minus query offset, rows first; with
    ``shared_heads=False`` (num_heads, n, head_dims). The keys' product is scaled by
    head_dims ** -0.5; queries come scaled.

    Raises:
        ValueError: for bad sizes or an unknown method.
    """

    def __init__(self, head_dims: int, num_heads: int, *, max_offset: int = 8,
                 method: str = 'product', shared_heads: bool = True, num_prefix_tokens: int = 0
                 ) -> None:
        super().__init__()
        check_sizes(head_dims, num_heads, num_prefix_tokens)
        if max_offset < 0:
            raise ValueError(f'max_offset={max_offset} must be >= 0')
        if method not in _METHODS:
            raise ValueError(f"method={method!r} must be 'product' or 'sequence'")
        self.head_dims, self.num_heads = head_dims, num_heads
        self.max_offset, self.method = max_offset, method
        self.num_prefix_tokens = num_prefix_tokens
        self.forms = ('chunked',) if method == 'product' else ()
        width = 2 * max_offset + 1
        rows = width if method == 'sequence' else width ** 2 + (num_prefix_tokens > 0)
        lead = () if shared_heads else (num_heads,)
        self.table = nn.Parameter(torch.empty(*lead, rows, head_dims))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Truncated normal, standard deviation 0.02."""
        nn.init.trunc_normal_(self.table, std=0.02)

    def logits(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
               ) -> Tensor:
        """The term (B, heads, Lq, Lk); shapes as :class:`RelativeEncoding`."""
        ids = self._ids(q_grid, k_grid, q.device)
        by_key = lookup_logits(k * self.head_dims ** -0.5, self.table, ids.t())
        return lookup_logits(q, self.table, ids) + by_key.transpose(-2, -1)

    def choose_form(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
                    ) -> str:
        """'chunked' for many pairs on a CPU, where the method has it."""
        return 'chunked' if self.forms and is_worth_chunking(q, k) else 'definition'

    def attend(self, q: Tensor, k: Tensor, v: Tensor, q_grid: GridLike,
               k_grid: GridLike | None = None, key_padding_mask: Tensor | None = None, *,
               form: str, scale: float = 1.0) -> Tensor:
        """The whole attention; see :class:`RelativeEncoding`."""
        query, key = as_grid(q_grid, 'q_grid'), key_grid(q_grid, k_grid)
        return attend_tables(q, k, v, query, key, self.max_offset,
                             num_prefix_tokens=self.num_prefix_tokens,
                             key_padding_mask=key_padding_mask, scale=scale, with_query=self.table,
                             with_key=self.table * self.head_dims ** -0.5)

    def _ids(self, q_grid: GridLike, k_grid: GridLike | None, device: torch.device) -> Tensor:
        query, key = as_grid(q_grid, 'q_grid'), key_grid(q_grid, k_grid)
        limit, prefix = self.max_offset, self.num_prefix_tokens
        if self.method == 'sequence':
            return sequence_index(query, key, prefix, limit, device)
        ids = pair_ids(query, key, (limit, limit), device)
        return add_prefix_bucket(ids, prefix, (2 * limit + 1) ** 2)
