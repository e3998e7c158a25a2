"""Swin's table of relative position biases."""
from __future__ import annotations

import torch
from torch import Tensor, nn

from ..functional.grids import Grid, GridLike, as_grid
from .offset_bias import OffsetBiasEncoding


class RelativePositionBias(OffsetBiasEncoding):
    """One learned number a head for each offset inside a window, added to the logits (Swin
    Transformer, ICCV 2021, Eq. 4).

    Args:
        num_heads: attention heads.
        window_size: (Wh, Ww), the largest grid the table holds; smaller ones use its middle.
            Attention in windows fills it in, and so do backbones with their grid at ``img_size``.
        num_prefix_tokens: tokens in front of the grid. Pairs with one of them get a learned number
            a head: ``prefix_bias`` (heads, 3) for prefix to cell, cell to prefix and prefix to
            prefix, as BEiT.
        prefix_bias: False leaves these numbers out: nothing is added to such pairs.

    Parameters: ``relative_position_bias_table`` ((2 Wh - 1) * (2 Ww - 1), heads), by query minus
    key, rows first: name and order of the release and of mmpretrain.

    Keys on a coarser grid take the entry of the nearest whole offset.

    Raises:
        ValueError: for bad sizes, and in use for a grid larger than the window.
    """

    cellwise = True

    def __init__(self, num_heads: int, *, window_size: GridLike, num_prefix_tokens: int = 0,
                 prefix_bias: bool = True) -> None:
        super().__init__()
        if num_heads < 1 or num_prefix_tokens < 0:
            raise ValueError(f'num_heads={num_heads} must be >= 1 and '
                             f'num_prefix_tokens={num_prefix_tokens} >= 0')
        self._set_heads(num_heads, num_prefix_tokens, prefix_bias)
        self.window_size = as_grid(window_size, 'window_size').hw
        self.table_size = (2 * self.window_size[0] - 1, 2 * self.window_size[1] - 1)
        self.relative_position_bias_table = nn.Parameter(
            torch.empty(self.table_size[0] * self.table_size[1], num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Truncated normal, standard deviation 0.02."""
        for table in self.parameters():
            nn.init.trunc_normal_(table, std=0.02)

    def offset_table(self, rows: Tensor, cols: Tensor, query: Grid) -> Tensor:
        """Entries of the nearest whole offsets; see :class:`OffsetBiasEncoding`."""
        if query.height > self.window_size[0] or query.width > self.window_size[1]:
            raise ValueError(f'q_grid=({query.height}, {query.width}) must fit into '
                             f'window_size={self.window_size}; set that to the largest grid')
        entries = [offsets.round().long().clamp(1 - side, side - 1) + side - 1
                   for offsets, side in zip((rows, cols), self.window_size, strict=True)]
        table = self.relative_position_bias_table.t().reshape(-1, *self.table_size)
        return table.index_select(1, entries[0]).index_select(2, entries[1])
