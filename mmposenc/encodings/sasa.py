"""Relative encoding of stand-alone self-attention: half of the channels for each axis."""
from __future__ import annotations

from torch import Tensor, nn

from ..attention.terms import Term
from ..attention.vector_terms import AxisHalves, pick_entries
from ..functional.bias_tables import row_and_column_entries
from ..functional.grids import Grid
from .base import RelativeEncoding


class SASARPE(RelativeEncoding):
    """logit + q_i . [row_table[r_j - r_i], col_table[c_j - c_i]]: the first half of the channels of
    a head is multiplied with a vector for the row offset, the second half with one for the column
    offset (Ramachandran et al., NeurIPS 2019, Eq. 4).

    Args:
        head_dims: channels of a head, even.
        num_heads: attention heads.
        max_offset: longest offset with a separate vector, one number or (rows, columns); longer
            ones use the last vector.
        shared_heads: one pair of tables for all heads, or one for each head.
        num_prefix_tokens: tokens in front of the grid; pairs with one of them get no term.

    Parameters: ``row_table`` (2 * max_offset + 1, head_dims / 2) and ``col_table``, by key minus
    query offset; with ``shared_heads=False`` (num_heads, ...).

    Raises:
        ValueError: for odd head_dims or a bad max_offset.

    Differs from the paper: attention is global or in windows, not in a neighbourhood of the query,
    so that offsets must be clipped.
    """

    variants = {'sasa': ('SASA', {})}
    cellwise = True

    def __init__(self, head_dims: int, num_heads: int, *, max_offset: int | tuple[int, int] = 15,
                 shared_heads: bool = True, num_prefix_tokens: int = 0) -> None:
        super().__init__()
        self._set_sizes(head_dims, num_heads, num_prefix_tokens)
        if head_dims % 2:
            raise ValueError(f'head_dims={head_dims} must be even: a half for each axis')
        limits = (max_offset,) * 2 if isinstance(max_offset, int) else tuple(max_offset)
        if len(limits) != 2 or any(not isinstance(x, int) or x < 0 for x in limits):
            raise ValueError(f'max_offset={max_offset!r} must be a whole number >= 0, or two: '
                             f'(rows, columns)')
        self.limits = (limits[0], limits[1])
        self.row_table, self.col_table = (
            self._empty_table(2 * limit + 1, head_dims // 2, shared_heads=shared_heads)
            for limit in limits)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the vectors from a truncated normal distribution with standard deviation 0.02."""
        nn.init.trunc_normal_(self.row_table, std=0.02)
        nn.init.trunc_normal_(self.col_table, std=0.02)

    def terms(self, q_grid: Grid, k_grid: Grid, tokens: Tensor | None = None) -> list[Term]:
        """One :class:`AxisHalves`; see :class:`RelativeEncoding`."""
        rows, cols = row_and_column_entries(q_grid, k_grid, self.limits, self.row_table.device)
        return [AxisHalves(pick_entries(self.row_table, rows), pick_entries(self.col_table, cols),
                           self.num_prefix_tokens, halves=True)]
