"""Swin's table of relative position biases."""
from __future__ import annotations

import torch
from torch import Tensor, nn

from ..functional.grid_cache import CACHE
from ..functional.grids import Grid, GridLike, as_grid
from ..functional.offsets import axis_offsets, expand_offsets
from .offset_bias import OffsetBias

#: Pairs up to which an index of all of them is kept.
_KEPT_PAIRS = 200 * 200


class RelativePositionBias(OffsetBias):
    """One learned number a head for each offset inside a window, added to the logits (Swin
    Transformer, ICCV 2021, Eq. 4).

    Args:
        num_heads: attention heads.
        window_size: (Wh, Ww), the largest grid the table holds; smaller ones use its middle.
        num_prefix_tokens: tokens in front of the grid. Pairs with one of them get a learned number
            a head: ``prefix_bias`` (heads, 3) for prefix to cell, cell to prefix and prefix to
            prefix, as BEiT.

    Parameters: ``relative_position_bias_table`` ((2 Wh - 1) * (2 Ww - 1), heads), by query minus
    key, rows first: name and order of the release and of mmpretrain.

    Keys on a coarser grid take the entry of the nearest whole offset.

    Raises:
        ValueError: for bad sizes, and in use for a grid larger than the window.
    """

    cellwise = True

    def __init__(self, num_heads: int, *, window_size: GridLike, num_prefix_tokens: int = 0
                 ) -> None:
        super().__init__()
        if num_heads < 1 or num_prefix_tokens < 0:
            raise ValueError(f'num_heads={num_heads} must be >= 1 and '
                             f'num_prefix_tokens={num_prefix_tokens} >= 0')
        self._set_heads(num_heads, num_prefix_tokens)
        self.window_size = as_grid(window_size, 'window_size').hw
        self.table_size = (2 * self.window_size[0] - 1, 2 * self.window_size[1] - 1)
        self.relative_position_bias_table = nn.Parameter(
            torch.empty(self.table_size[0] * self.table_size[1], num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Truncated normal, standard deviation 0.02."""
        for table in self.parameters():
            nn.init.trunc_normal_(table, std=0.02)

    def _offset_bias(self, query: Grid, key: Grid) -> tuple[Tensor, Tensor, Tensor]:
        self._check(query)
        rows, cols, row_index, col_index = _entries(query, key, self.window_size,
                                                    self.relative_position_bias_table.device)
        table = self.relative_position_bias_table.t().reshape(-1, *self.table_size)
        return table.index_select(1, rows).index_select(2, cols), row_index, col_index

    def _pair_bias(self, query: Grid, key: Grid) -> Tensor:
        """As the base, by one look-up where its index is small enough to be kept for next time."""
        self._check(query)
        pairs = query.num_cells * key.num_cells
        if torch.compiler.is_compiling() or pairs > _KEPT_PAIRS:
            return super()._pair_bias(query, key)
        table, window = self.relative_position_bias_table, self.window_size
        index = CACHE.get(('relative_bias', query, key, window, table.device),
                          lambda: _pair_entries(query, key, window, table.device), lambda x: [x])
        bias: Tensor = table.t().index_select(1, index)
        return bias.view(-1, query.num_cells, key.num_cells)

    def _check(self, query: Grid) -> None:
        if query.height > self.window_size[0] or query.width > self.window_size[1]:
            raise ValueError(f'q_grid=({query.height}, {query.width}) must fit into '
                             f'window_size={self.window_size}')


def _entries(query: Grid, key: Grid, window: tuple[int, int], device: torch.device
             ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Rows (Dr,) and columns (Dc,) of the table by distinct offset, and the offsets of pairs."""
    rows, row_index = axis_offsets(query.height, key.height, query.stride_h, key.stride_h, device)
    cols, col_index = axis_offsets(query.width, key.width, query.stride_w, key.stride_w, device)
    rows, cols = (values.round().long().clamp(1 - side, side - 1) + side - 1
                  for values, side in zip((rows, cols), window, strict=True))
    return rows, cols, row_index, col_index


def _pair_entries(query: Grid, key: Grid, window: tuple[int, int], device: torch.device) -> Tensor:
    """Entry of the flattened table for every pair, (Lq * Lk,)."""
    rows, cols, row_index, col_index = _entries(query, key, window, device)
    ids = rows[:, None] * (2 * window[1] - 1) + cols
    return expand_offsets(ids, row_index, col_index).flatten()
