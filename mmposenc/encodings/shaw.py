"""Relative encoding of Shaw et al.: clipped offsets on keys and values."""
from __future__ import annotations

from torch import Tensor

from ..attention.terms import TableByQuery, TableOnValues, Term
from ..functional.grids import Grid
from .clipped_tables import ClippedTables


class ShawRPE(ClippedTables):
    """logit + q_i . key_table[clip(j - i)], and output + sum_j attn_ij value_table[clip(j - i)]
    (Shaw et al., NAACL 2018, Eq. 3-4), with clip(x) = max(-K, min(K, x)).

    The paper treats sequences. On a grid there are two methods:

    - 'product' clips the row and the column offset to K and has a vector for each pair, (2 K + 1)^2
      in all. This is the baseline of vision papers (CPVT with K = 8, the clip index of iRPE).
    - 'sequence' uses offsets in the flattened grid with its prefix tokens, as the paper, and has
      2 K + 1 vectors. It cannot distinguish the end of a row from the start of the next.

    For a row term plus a column term see :class:`QueryRelative2D` and :class:`SASARPE`.

    Args:
        head_dims: channels of a head.
        num_heads: attention heads.
        max_offset: K.
        method: 'product' or 'sequence'.
        on_keys: the term in the logits.
        on_values: the term in the output.
        shared_heads: one table for all heads (as in the paper), or one for each head.
        num_prefix_tokens: tokens in front of the grid. With 'product' all pairs with one of them
            share the last vector of the table, as in iRPE.

    Parameters: ``key_table`` and ``value_table``, (n, head_dims) by key minus query offset, rows
    first; with ``shared_heads=False`` (num_heads, n, head_dims).

    Raises:
        ValueError: for bad sizes, an unknown method, or neither keys nor values.
    """

    variants = {'shaw': ('Shaw', {})}

    def __init__(self, head_dims: int, num_heads: int, *, max_offset: int = 8,
                 method: str = 'product', on_keys: bool = True, on_values: bool = False,
                 shared_heads: bool = True, num_prefix_tokens: int = 0) -> None:
        super().__init__(head_dims, num_heads, max_offset, method, shared_heads, num_prefix_tokens)
        if not on_keys and not on_values:
            raise ValueError('on_keys=False and on_values=False leave nothing to encode')
        self.on_keys, self.on_values = on_keys, on_values
        if on_keys:
            self.key_table = self._new_table()
        if on_values:
            self.value_table = self._new_table()
        self.reset_parameters()

    def terms(self, q_grid: Grid, k_grid: Grid, tokens: Tensor | None = None) -> list[Term]:
        """A table on keys, on values, or both; see :class:`RelativeEncoding`."""
        buckets = self._buckets(q_grid, k_grid)
        terms: list[Term] = []
        if self.on_keys:
            terms.append(TableByQuery(self.key_table.transpose(-2, -1), buckets))
        if self.on_values:
            terms.append(TableOnValues(self.value_table, buckets))
        return terms
