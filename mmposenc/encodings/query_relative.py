"""Products of queries with learned vectors for the offset, in a sequence or on two axes."""
from __future__ import annotations

from torch import Tensor, nn

from ..attention.terms import Term
from ..attention.vector_terms import AxisHalves, pick_entries
from ..functional.bias_tables import row_and_column_entries
from ..functional.grids import Grid, GridLike, as_grid
from .base import RelativeEncoding
from .sequence_table import SequenceTable, sequence_terms


class QueryRelative1D(SequenceTable):
    """logit + q_i . table[j - i + max_tokens - 1] with i and j positions in the flattened sequence
    ("Positional embeddings in self-attention", AI Summer; Shaw et al., 2018, without clipping).

    Args:
        head_dims: channels of a head.
        num_heads: attention heads.
        max_tokens: longest sequence of queries, prefix tokens included.
        shared_heads: one table for all heads, or one for each head.
        num_prefix_tokens: tokens in front of the grid; they are part of the sequence.

    Parameters: ``table`` (2 * max_tokens - 1, head_dims), by key minus query; with
    ``shared_heads=False`` (num_heads, ...). It starts normal with standard deviation
    head_dims ** -0.5, as in the article.

    Keys on a coarser grid have the position of the query cell nearest to their centre. Tokens of an
    image in a padded batch are numbered without the padding.

    Raises:
        ValueError: for bad sizes, and for a sequence longer than ``max_tokens``.
    """

    variants = {'query-relative-1d': ('query-relative 1-D', {})}

    @staticmethod
    def num_rows(max_tokens: int) -> int:
        """The number of rows of the table: one for each offset in a sequence."""
        return 2 * max_tokens - 1

    def terms(self, q_grid: Grid, k_grid: Grid, tokens: Tensor | None = None) -> list[Term]:
        """The terms of :func:`sequence_terms`; see :class:`RelativeEncoding`."""
        return sequence_terms(self._vectors_of_grid(q_grid), None, q_grid, k_grid,
                              self.num_prefix_tokens)

    def _vectors_of_grid(self, q_grid: Grid) -> Tensor:
        """The vectors for the offsets that occur in the sequence of queries."""
        length = self.sequence_length(q_grid, 'q_grid')
        # Only the offsets 1 - length .. length - 1 occur, so that a short sequence needs no other
        # rows.
        return self.table.narrow(-2, self.max_tokens - length, 2 * length - 1)


class QueryRelative2D(RelativeEncoding):
    """logit + q_i . (row_table[r_j - r_i] + col_table[c_j - c_i]) ("Positional embeddings in
    self-attention", AI Summer; BoTNet, CVPR 2021, Fig. 4).

    Args:
        head_dims: channels of a head.
        num_heads: attention heads.
        max_size: (height, width) of the largest query grid.
        shared_heads: one pair of tables for all heads, or one for each head.
        num_prefix_tokens: tokens in front of the grid; pairs with one of them get no term.

    Parameters: ``row_table`` (2 * height - 1, head_dims) and ``col_table`` (2 * width - 1,
    head_dims), by key minus query; with ``shared_heads=False`` (num_heads, ...).

    Raises:
        ValueError: for bad sizes, and for a grid larger than ``max_size``.

    Differs from the code of the article, which swaps height and width: here row offsets use
    ``row_table``, so that grids need not be square.
    """

    variants = {'query-relative-2d': ('query-relative 2-D', {})}
    cellwise = True

    def __init__(self, head_dims: int, num_heads: int, *, max_size: GridLike,
                 shared_heads: bool = True, num_prefix_tokens: int = 0) -> None:
        super().__init__()
        self._set_sizes(head_dims, num_heads, num_prefix_tokens)
        self.max_size = as_grid(max_size, 'max_size').hw
        self.row_table, self.col_table = (
            self._empty_table(2 * side - 1, head_dims, shared_heads=shared_heads)
            for side in self.max_size)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the vectors from a normal distribution with standard deviation head_dims ** -0.5."""
        for table in (self.row_table, self.col_table):
            nn.init.normal_(table, std=table.shape[-1] ** -0.5)

    def terms(self, q_grid: Grid, k_grid: Grid, tokens: Tensor | None = None) -> list[Term]:
        """One :class:`AxisHalves`; see :class:`RelativeEncoding`."""
        if q_grid.height > self.max_size[0] or q_grid.width > self.max_size[1]:
            raise ValueError(f'q_grid=({q_grid.height}, {q_grid.width}) must fit into '
                             f'max_size={self.max_size}')
        limits = (self.max_size[0] - 1, self.max_size[1] - 1)
        rows, cols = row_and_column_entries(q_grid, k_grid, limits, self.row_table.device)
        return [AxisHalves(pick_entries(self.row_table, rows), pick_entries(self.col_table, cols),
                           self.num_prefix_tokens)]
