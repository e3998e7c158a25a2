"""Tables of biases by the distance along each axis: LeViT's, EfficientFormer's and TinyViT's."""
from __future__ import annotations

import torch
from torch import Tensor, nn

from ..functional.bias_tables import resize_table
from ..functional.grids import Grid, GridLike, as_grid
from .checks import check_choices
from .offset_bias import OffsetBiasEncoding


class UndirectedPositionBias(OffsetBiasEncoding):
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

    def __init__(self, num_heads: int, *, window_size: GridLike, num_prefix_tokens: int = 0,
                 prefix_bias: bool = True, resize: str | None = None) -> None:
        super().__init__()
        check_choices(resize=(resize, (None, 'bicubic', 'bicubic_antialias')))
        self._set_heads(num_heads, num_prefix_tokens, prefix_bias)
        self.window_size = as_grid(window_size, 'window_size').hw
        self.resize, self.cellwise = resize, resize is None
        sides = self.window_size
        self.attention_biases = nn.Parameter(torch.zeros(num_heads, sides[0] * sides[1]))

    def reset_parameters(self) -> None:
        """Zeros, as the releases."""
        self.start_at_zero()

    def offset_table(self, rows: Tensor, cols: Tensor, query: Grid) -> Tensor:
        """Entries of the nearest whole distances; see :class:`OffsetBiasEncoding`."""
        table, side = self.attention_biases.view(-1, *self.window_size), self.window_size
        if self.resize is not None:
            table, side = resize_table(table, query.hw, self.resize), query.hw
        elif query.height > side[0] or query.width > side[1]:
            raise ValueError(f'q_grid=({query.height}, {query.width}) must fit into '
                             f'window_size={side}; set that to the largest grid, or give resize')
        entries = [offsets.abs().round().long().clamp(max=length - 1)
                   for offsets, length in zip((rows, cols), side, strict=True)]
        found: Tensor = table.index_select(1, entries[0]).index_select(2, entries[1])
        return found
