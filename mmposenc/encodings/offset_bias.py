"""Base class of the encodings that add to each head a bias that depends only on the offset."""
from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from ..attention.terms import Term
from ..attention.vector_terms import OffsetBias
from ..functional.bias_tables import resize_table
from ..functional.grids import Grid, GridLike, as_grid, grid_offsets
from ..functional.masking import are_known_equal
from ..functional.row_chunks import by_rows
from ..functional.tracing import are_plain, full_precision, is_compiling
from .base import RelativeEncoding
from .checks import check_at_least, check_choices
from .saved_grid import SavesGrid

#: Bytes of hidden features of a network of offsets (log CPB) that training keeps; more of them are
#: computed again, so many at a time (not measured on a GPU).
FEATURES_BYTES = 16 * 1024 * 1024


class OffsetBiasEncoding(RelativeEncoding):
    """logit[i, j] = bias[head, row offset, column offset].

    Pairs with a prefix token get a learned number for each head, ``prefix_bias`` (heads, 3), for
    prefix to cell, cell to prefix and prefix to prefix, as in BEiT. It starts at zero. Encodings
    without it add nothing to these pairs.
    """

    def _set_heads(self, num_heads: int, num_prefix_tokens: int, prefix_bias: bool = True) -> None:
        """Set the sizes, and create ``prefix_bias`` if it is asked for and there are prefix tokens.
        """
        check_at_least(1, num_heads=num_heads)
        check_at_least(0, num_prefix_tokens=num_prefix_tokens)
        self.num_heads, self.num_prefix_tokens = num_heads, num_prefix_tokens
        if num_prefix_tokens and prefix_bias:
            self.prefix_bias = torch.nn.Parameter(torch.zeros(num_heads, 3))

    def reset_parameters(self) -> None:
        """Set the initial weights of the layers, and ``prefix_bias`` to zero."""
        super().reset_parameters()
        if hasattr(self, 'prefix_bias'):
            torch.nn.init.zeros_(self.prefix_bias)

    @abstractmethod
    def offset_table(self, row_offsets: Tensor, col_offsets: Tensor, q_grid: Grid) -> Tensor:
        """The bias (heads or 1, Dr, Dc) for row offsets (Dr,) and column offsets (Dc,), which are
        query minus key in cells of ``q_grid``, the query grid."""

    def terms(self, q_grid: Grid, k_grid: Grid, tokens: Tensor | None = None) -> list[Term]:
        """One :class:`OffsetBias`; see :class:`RelativeEncoding`."""
        return [OffsetBias(self._table_of_grids(q_grid, k_grid), q_grid, k_grid,
                           getattr(self, 'prefix_bias', None), self.num_prefix_tokens)]

    def _table_of_grids(self, q_grid: Grid, k_grid: Grid) -> Tensor:
        """:meth:`offset_table` of the offsets of two grids."""
        like = next((x for x in (*self.parameters(), *self.buffers())), None)
        like = torch.empty(()) if like is None else like
        rows, _, cols, _ = grid_offsets(q_grid, k_grid, like.device)
        # In half precision, offsets beyond 256 cells would be rounded.
        dtype = torch.promote_types(like.dtype, torch.float32)
        rows, cols = rows.to(dtype), cols.to(dtype)
        table = self.offset_table(rows, cols, q_grid)
        # While compiling, a comparison of sizes would become a condition of the graph.
        if not is_compiling() and (table.dim() != 3 or table.shape[1:] != (len(rows), len(cols))):
            raise ValueError(f'offset_table of {type(self).__name__} has shape '
                             f'{tuple(table.shape)}; (heads or 1, row offsets, column offsets) = '
                             f'({self.num_heads}, {len(rows)}, {len(cols)}) is required')
        return table


class WindowTable(SavesGrid, OffsetBiasEncoding):
    """Base class of learned tables for the offsets in a window, with or without their signs.

    Args: as for :class:`RelativePositionBias`.
    """

    grid_name = 'window_size'
    #: The values that ``resize`` may have besides None.
    resizings: tuple[str, ...]
    #: Whether offsets have signs; if not, the table has an entry for each distance.
    signed = True

    def __init__(self, num_heads: int, *, window_size: GridLike, num_prefix_tokens: int = 0,
                 prefix_bias: bool = True, resize: str | None = None) -> None:
        super().__init__()
        check_choices(resize=(resize, (None, *self.resizings)))
        self._set_heads(num_heads, num_prefix_tokens, prefix_bias)
        self._set_sides(as_grid(window_size, 'window_size').hw)
        self.resize, self.cellwise = resize, resize is None
        self.table_size = self._table_sides(self.sides)
        self._make_table()
        self.reset_parameters()

    @abstractmethod
    def _make_table(self) -> None:
        """Create the uninitialized table."""

    def _table_sides(self, window: tuple[int, int]) -> tuple[int, int]:
        return (2 * window[0] - 1, 2 * window[1] - 1) if self.signed else window

    @abstractmethod
    def _whole_table(self) -> Tensor:
        """The table as (heads, *table_size)."""

    def _table_of_grids(self, q_grid: Grid, k_grid: Grid) -> Tensor:
        window = self.sides if self.resize is None else q_grid.hw
        if self.signed and are_known_equal((q_grid, k_grid), (Grid(*window),) * 2):
            return self._resized(window)  # It has an entry for each offset, in their order.
        return super()._table_of_grids(q_grid, k_grid)

    def offset_table(self, row_offsets: Tensor, col_offsets: Tensor, q_grid: Grid) -> Tensor:
        """Read the table at the nearest whole offsets; see :class:`OffsetBiasEncoding`."""
        window = self.sides if self.resize is None else q_grid.hw
        if q_grid.height > window[0] or q_grid.width > window[1]:
            raise ValueError(f'q_grid=({q_grid.height}, {q_grid.width}) must fit into '
                             f'window_size={window}; set that to the largest grid, or give resize')
        table = self._resized(window)
        both = (row_offsets, col_offsets)
        for axis, (offsets, side) in enumerate(zip(both, window, strict=True), 1):
            at = offsets.round().long().clamp(1 - side, side - 1)
            table = table.index_select(axis, at + side - 1 if self.signed else at.abs())
        return table

    def _resized(self, window: tuple[int, int]) -> Tensor:
        """The table for another window, if it shall be resized."""
        table = self._whole_table()
        return table if self.resize is None else resize_table(
            table, self._table_sides(window), self.resize)


def table_of_network(network: Callable[[Tensor, Tensor], Tensor], row_offsets: Tensor,
                     col_offsets: Tensor, hidden_dims: int) -> Tensor:
    """(heads, rows, cols) from a network that returns (rows, cols, heads). If its
    ``hidden_dims`` features would be large, some rows at a time are computed, and again in the
    backward pass. It runs without autocast, since it is small and many pairs use its output."""
    with full_precision(row_offsets):
        biases = by_rows(lambda some: network(some, col_offsets), row_offsets,
                         FEATURES_BYTES
                         // (col_offsets.numel() * hidden_dims * col_offsets.element_size()))
    return biases.permute(2, 0, 1)


def offset_pairs(row_offsets: Tensor, col_offsets: Tensor) -> Tensor:
    """All pairs (rows, cols, 2) of a row offset and a column offset."""
    return torch.stack((row_offsets[:, None].expand(-1, len(col_offsets)),
                        col_offsets.expand(len(row_offsets), -1)), -1)


def linear_of_offsets(layer: torch.nn.Module, row_offsets: Tensor, col_offsets: Tensor) -> Tensor:
    """Apply a linear layer with 2 inputs to all pairs of offsets: (rows, cols, features). A plain
    layer is applied to each axis separately, and the results are added."""
    if not isinstance(layer, torch.nn.Linear) or not are_plain(layer):
        return layer(offset_pairs(row_offsets, col_offsets))
    by_row = row_offsets[:, None, None] * layer.weight[:, 0]
    return by_row + (col_offsets[None, :, None] * layer.weight[:, 1] + layer.bias)


def euclidean_distances(row_offsets: Tensor, col_offsets: Tensor) -> Tensor:
    """The Euclidean distances (Dr, Dc) of row offsets (Dr,) and column offsets (Dc,). (ONNX has no
    ``hypot``.)"""
    return (row_offsets[:, None] ** 2 + col_offsets ** 2).sqrt()
