"""Swin's table of relative position biases."""
from __future__ import annotations

import torch
from torch import Tensor, nn

from ..functional.grids import Grid, GridLike, as_grid, key_grid
from ..functional.offset_terms import add_prefix_bias, table_bias
from ..functional.offsets import axis_offsets
from .base import RelativeEncoding
from .chunked_tables import attend_bias, is_worth_chunking


class RelativePositionBias(RelativeEncoding):
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

    contextual = False

    def __init__(self, num_heads: int, *, window_size: GridLike, num_prefix_tokens: int = 0
                 ) -> None:
        super().__init__()
        if num_heads < 1 or num_prefix_tokens < 0:
            raise ValueError(f'num_heads={num_heads} must be >= 1 and '
                             f'num_prefix_tokens={num_prefix_tokens} >= 0')
        self.num_heads = num_heads
        self.window_size = as_grid(window_size, 'window_size').hw
        self.num_prefix_tokens = num_prefix_tokens
        self.forms = () if num_prefix_tokens else ('chunked',)
        self.table_size = (2 * self.window_size[0] - 1, 2 * self.window_size[1] - 1)
        self.relative_position_bias_table = nn.Parameter(
            torch.empty(self.table_size[0] * self.table_size[1], num_heads))
        if num_prefix_tokens:
            self.prefix_bias = nn.Parameter(torch.empty(num_heads, 3))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Truncated normal, standard deviation 0.02."""
        for table in self.parameters():
            nn.init.trunc_normal_(table, std=0.02)

    def logits(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
               ) -> Tensor:
        """The bias (1, heads, Lq, Lk); ``q`` and ``k`` are not read."""
        query, key = as_grid(q_grid, 'q_grid'), key_grid(q_grid, k_grid)
        bias = table_bias(*self._offset_bias(query, key))
        return add_prefix_bias(bias, getattr(self, 'prefix_bias', None), self.num_prefix_tokens)

    def choose_form(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
                    ) -> str:
        """'chunked' for many pairs on a CPU."""
        return 'chunked' if self.forms and is_worth_chunking(q, k) else 'definition'

    def attend(self, q: Tensor, k: Tensor, v: Tensor, q_grid: GridLike,
               k_grid: GridLike | None = None, key_padding_mask: Tensor | None = None, *,
               form: str, scale: float = 1.0) -> Tensor:
        """The whole attention; see :class:`RelativeEncoding`."""
        query, key = as_grid(q_grid, 'q_grid'), key_grid(q_grid, k_grid)
        return attend_bias(q, k, v, query, key, *self._offset_bias(query, key), key_padding_mask,
                           scale)

    def _offset_bias(self, query: Grid, key: Grid) -> tuple[Tensor, Tensor, Tensor]:
        """Bias (heads, Dr, Dc) of the distinct offsets, and which of them pairs of rows (Hq, Hk)
        and of columns (Wq, Wk) have."""
        if query.height > self.window_size[0] or query.width > self.window_size[1]:
            raise ValueError(f'q_grid=({query.height}, {query.width}) must fit into '
                             f'window_size={self.window_size}')
        table = self.relative_position_bias_table.t().reshape(-1, *self.table_size)
        strides = query.stride_h, key.stride_h, query.stride_w, key.stride_w
        rows, row_index = axis_offsets(query.height, key.height, *strides[:2], table.device)
        cols, col_index = axis_offsets(query.width, key.width, *strides[2:], table.device)
        rows, cols = (values.round().long().clamp(1 - side, side - 1) + side - 1
                      for values, side in zip((rows, cols), self.window_size, strict=True))
        return table.index_select(1, rows).index_select(2, cols), row_index, col_index
