"""Relative encoding of Huang et al.: products of an offset vector with the query and the key."""
from __future__ import annotations

from torch import Tensor

from ..attention.terms import TableByKey, TableByQuery, Term
from ..functional.grids import Grid
from .clipped_tables import ClippedTables


class HuangRPE(ClippedTables):
    """(q_i . k_j + q_i . a_ij + k_j . a_ij) / sqrt(head_dims), method 4 of "Improve Transformer
    Models with Better Relative Position Embeddings" (Huang et al., Findings of EMNLP 2020, Sec. 3).
    The iRPE paper writes it as (q_i + a_ij) . (k_j + a_ij) - a_ij . a_ij.

    Args:
        head_dims: channels of a head.
        num_heads: attention heads.
        max_offset: largest offset; longer ones are clipped.
        method: 'product' has a vector for each pair of a clipped row and column offset; 'sequence'
            uses offsets in the flattened grid with its prefix tokens, as the paper
            (:class:`ShawRPE`).
        shared_heads: one table for all heads, or one for each head.
        num_prefix_tokens: tokens in front of the grid. With 'product' all pairs with one of them
            share the last vector of the table.

    Parameters: ``table`` (n, head_dims) by key minus query offset, rows first; with
    ``shared_heads=False`` (num_heads, n, head_dims).

    Raises:
        ValueError: for bad sizes or an unknown method.
    """

    variants = {'huang': ('Huang', {})}

    def __init__(self, head_dims: int, num_heads: int, *, max_offset: int = 8,
                 method: str = 'product', shared_heads: bool = True, num_prefix_tokens: int = 0
                 ) -> None:
        super().__init__(head_dims, num_heads, max_offset, method, shared_heads, num_prefix_tokens)
        self.table = self._new_table()
        self.reset_parameters()

    def terms(self, q_grid: Grid, k_grid: Grid, tokens: Tensor | None = None) -> list[Term]:
        """One table multiplied with queries and with keys; see :class:`RelativeEncoding`."""
        buckets, table = self._buckets(q_grid, k_grid), self.table.transpose(-2, -1)
        return [TableByQuery(table, buckets), TableByKey(table * self.head_dims ** -0.5, buckets)]
