"""Products of queries with learned vectors of the offset, on a sequence or on two axes."""
from __future__ import annotations

import torch
from torch import Tensor, nn

from ..functional.grids import Grid, GridLike, as_grid, key_grid
from ..functional.head_tables import by_head
from ..functional.offset_index import grid_index
from ..functional.offset_terms import axis_terms, sequence_logits
from ..functional.skewed_attention import skewed_attention
from .axis_encoding import AxisEncoding, axis_tables, check_sizes
from .base import RelativeEncoding


class QueryRelative1D(RelativeEncoding):
    """q_i . table[j - i + max_tokens - 1], i and j places in the flattened sequence ("Positional
    embeddings in self-attention", AI Summer; Shaw et al., 2018, without clipping).

    Args:
        head_dims: channels of a head.
        num_heads: attention heads.
        max_tokens: longest sequence of queries, prefix tokens included.
        shared_heads: one table for all heads, or one a head.
        num_prefix_tokens: tokens in front of the grid; they are part of the sequence.

    Parameters: ``table`` (2 * max_tokens - 1, head_dims), by key minus query; with
    ``shared_heads=False`` (num_heads, ...). It starts normal with standard deviation
    head_dims ** -0.5, as in the article.

    Keys on a coarser grid take the place of the query cell nearest to their centre. A place in the
    sequence depends on the width of the grid, so here padding changes the result.

    Raises:
        ValueError: for bad sizes, and in use for a longer sequence.
    """

    forms = ('skewed',)

    def __init__(self, head_dims: int, num_heads: int, *, max_tokens: int,
                 shared_heads: bool = True, num_prefix_tokens: int = 0) -> None:
        super().__init__()
        check_sizes(head_dims, num_heads, num_prefix_tokens)
        if max_tokens < 1:
            raise ValueError(f'max_tokens={max_tokens} must be >= 1')
        self.max_tokens = max_tokens
        self.head_dims, self.num_heads = head_dims, num_heads
        self.num_prefix_tokens = num_prefix_tokens
        lead = () if shared_heads else (num_heads,)
        self.table = nn.Parameter(torch.empty(*lead, 2 * max_tokens - 1, head_dims))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal, standard deviation head_dims ** -0.5."""
        nn.init.normal_(self.table, std=self.table.shape[-1] ** -0.5)

    def logits(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
               ) -> Tensor:
        """The term (B, heads, Lq, Lk); shapes as :class:`RelativeEncoding`."""
        query, key = as_grid(q_grid, 'q_grid'), key_grid(q_grid, k_grid)
        return sequence_logits(q, self._used(query), query, key, self.num_prefix_tokens)

    def choose_form(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
                    ) -> str:
        """'skewed' on a CPU, where keys lie on the query grid."""
        if q.device.type != 'cpu' or torch.compiler.is_compiling():
            return 'definition'
        same = key_grid(q_grid, k_grid) == as_grid(q_grid, 'q_grid')
        return 'skewed' if same else 'definition'

    def attend(self, q: Tensor, k: Tensor, v: Tensor, q_grid: GridLike,
               k_grid: GridLike | None = None, key_padding_mask: Tensor | None = None, *,
               form: str, scale: float = 1.0) -> Tensor:
        """The whole attention, without an (L, L) tensor; see :class:`RelativeEncoding`.

        Raises:
            ValueError: if keys do not lie on the query grid.
        """
        query, key = as_grid(q_grid, 'q_grid'), key_grid(q_grid, k_grid)
        if key != query:
            raise ValueError(f"form='skewed' needs keys on the query grid; q_grid={query}, "
                             f"k_grid={key}; use 'auto' or 'definition'")
        with torch.autocast(q.device.type, enabled=False):
            rows, padding = by_head(q, k, v, key_padding_mask)
            table = self._used(query).to(rows[0].dtype)
            out = skewed_attention(*rows, table if table.dim() == 3 else table[None],
                                   padding=padding, scale=scale)
        return out.view(q.shape).to(v.dtype)

    def _used(self, query: Grid) -> Tensor:
        """Vectors of the offsets 1 - length .. length - 1 of a sequence of queries."""
        length = self.num_prefix_tokens + query.num_cells
        if length > self.max_tokens:
            raise ValueError(
                f'q_grid=({query.height}, {query.width}) and num_prefix_tokens='
                f'{self.num_prefix_tokens} make {length} tokens; the table has max_tokens='
                f'{self.max_tokens}')
        # Only offsets 1 - length .. length - 1 occur: a short sequence pays for no others.
        used: Tensor = self.table.narrow(-2, self.max_tokens - length, 2 * length - 1)
        return used


class QueryRelative2D(AxisEncoding):
    """q_i . (row_table[r_j - r_i] + col_table[c_j - c_i]) ("Positional embeddings in
    self-attention", AI Summer; BoTNet, CVPR 2021, Fig. 4).

    Args:
        head_dims: channels of a head.
        num_heads: attention heads.
        max_size: longest query grid (height, width) the tables hold.
        shared_heads: one pair of tables for all heads, or a pair a head.
        num_prefix_tokens: tokens in front of the grid; pairs with one of them get no term.

    Parameters: ``row_table`` (2 * height - 1, head_dims) and ``col_table`` (2 * width - 1,
    head_dims), by key minus query; with ``shared_heads=False`` (num_heads, ...).

    Raises:
        ValueError: for bad sizes, and in use for a larger grid.

    Differs from the article's code, which swaps height and width: rows here use the table of rows,
    so grids need not be square.
    """

    def __init__(self, head_dims: int, num_heads: int, *, max_size: GridLike,
                 shared_heads: bool = True, num_prefix_tokens: int = 0) -> None:
        super().__init__()
        check_sizes(head_dims, num_heads, num_prefix_tokens)
        self.max_size = as_grid(max_size, 'max_size').hw
        self.head_dims, self.num_heads = head_dims, num_heads
        self.num_prefix_tokens = num_prefix_tokens
        lengths = (2 * self.max_size[0] - 1, 2 * self.max_size[1] - 1)
        self.row_table, self.col_table = axis_tables(lengths, head_dims, num_heads, shared_heads)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal, standard deviation head_dims ** -0.5."""
        for table in (self.row_table, self.col_table):
            nn.init.normal_(table, std=table.shape[-1] ** -0.5)

    def _terms(self, q: Tensor, query: Grid, key: Grid) -> tuple[Tensor, Tensor]:
        if query.height > self.max_size[0] or query.width > self.max_size[1]:
            raise ValueError(f'q_grid=({query.height}, {query.width}) must fit into '
                             f'max_size={self.max_size}')
        limits = (self.max_size[0] - 1, self.max_size[1] - 1)
        rows, cols = grid_index(query, key, limits, q.device)
        return axis_terms(q, self.row_table, self.col_table, rows, cols)
