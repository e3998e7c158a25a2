"""Tables of relative position biases: Swin's, and BEiT's."""
from __future__ import annotations

import torch
from torch import Tensor, nn

from ..functional.bias_tables import RESIZINGS
from ..functional.grids import Grid
from .offset_bias import WindowTable


class RelativePositionBias(WindowTable):
    """One learned number a head for each offset inside a window, added to the logits (Swin
    Transformer, ICCV 2021, Eq. 4; with numbers of the class token, BEiT, ICLR 2022, Sec. 2.4).

    Args:
        num_heads: attention heads.
        window_size: (Wh, Ww), the grid of the table. Attention in windows fills it in, and so do
            backbones with their grid at ``img_size``.
        num_prefix_tokens: tokens in front of the grid. Pairs with one of them get a learned number
            a head: ``prefix_bias`` (heads, 3) for prefix to cell, cell to prefix and prefix to
            prefix, as BEiT.
        prefix_bias: False leaves these numbers out: nothing is added to such pairs.
        resize: what happens on other grids than that of the table. None: smaller ones use its
            middle, and larger ones are an error. 'geometric' (timm's BEiT), 'geometric-cubic'
            (BEiT's release) or 'bicubic' (Swin's) resizes it to each grid
            (:func:`mmposenc.functional.bias_tables.resize_bias_table`), which these do once, before
            fine-tuning. An image in a padded batch is a grid by itself.

    Parameters: ``relative_position_bias_table`` ((2 Wh - 1) * (2 Ww - 1), heads), by query minus
    key, rows first: name and order of the release and of mmpretrain.

    Keys on a coarser grid take the entry of the nearest whole offset.

    Raises:
        ValueError: for bad sizes or an unknown ``resize``, and in use for a grid larger than a
            table that is not resized.
    """

    resizings = RESIZINGS

    def _make_table(self) -> None:
        if self.resize == 'geometric-cubic' and 2 in self.window_size:
            raise ValueError(f'window_size={self.window_size} with resize={self.resize!r}: sides '
                             f'must not be 2, whose three offsets make no cubic spline')
        self.relative_position_bias_table = nn.Parameter(
            torch.empty(self.table_size[0] * self.table_size[1], self.num_heads))

    def reset_parameters(self) -> None:
        """Truncated normal, standard deviation 0.02."""
        for table in self.parameters():
            nn.init.trunc_normal_(table, std=0.02)

    def offset_table(self, rows: Tensor, cols: Tensor, query: Grid) -> Tensor:
        """Entries of the nearest whole offsets; see :class:`OffsetBiasEncoding`."""
        table = self.relative_position_bias_table.t().reshape(-1, *self.table_size)
        return self._entries(table, rows, cols, query)
