"""Tables of biases by the distance along each axis: LeViT's, EfficientFormer's and TinyViT's."""
from __future__ import annotations

import torch
from torch import Tensor, nn

from ..functional.grids import Grid
from .offset_bias import WindowTable


class UndirectedPositionBias(WindowTable):
    """logit + table[head, abs(row offset), abs(column offset)]: a learned number that does not tell
    left from right (attention bias, LeViT, Graham et al., ICCV 2021, Eq. 1; EfficientFormer, Li et
    al., NeurIPS 2022; TinyViT, Wu et al., ECCV 2022).

    Args:
        num_heads: attention heads.
        window_size: (Wh, Ww), the grid of the table, filled in as of :class:`RelativePositionBias`.
        num_prefix_tokens: tokens in front of the grid. Pairs with one of them get a learned bias a
            head: ``prefix_bias`` (heads, 3), see :class:`OffsetBiasEncoding`.
        prefix_bias: False leaves these biases out.
        resize: what happens on other grids than that of the table. None: smaller ones use its near
            part, and larger ones are an error. 'bicubic' (TinyViT's release) and
            'bicubic_antialias' (timm's) resize it to each grid, which these do once, before
            fine-tuning. An image in a padded batch is a grid by itself.

    Parameters: ``attention_biases`` (heads, Wh * Ww), name and order of the releases.

    Keys on a coarser grid take the entry of the nearest whole distance.

    Raises:
        ValueError: for bad sizes or an unknown ``resize``, and in use for a grid larger than a
            table that is not resized.
    """

    resizings = ('bicubic', 'bicubic_antialias')
    signed = False

    def _make_table(self) -> None:
        self.attention_biases = nn.Parameter(
            torch.empty(self.num_heads, self.table_size[0] * self.table_size[1]))

    def reset_parameters(self) -> None:
        """Zeros, as the releases."""
        self.start_at_zero()

    def offset_table(self, rows: Tensor, cols: Tensor, query: Grid) -> Tensor:
        """Entries of the nearest whole distances; see :class:`OffsetBiasEncoding`."""
        return self._entries(self.attention_biases.view(-1, *self.table_size), rows, cols, query)
