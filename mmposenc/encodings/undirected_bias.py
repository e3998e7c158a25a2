"""Tables of biases for the distance along each axis: LeViT, EfficientFormer and TinyViT."""
from __future__ import annotations

import torch
from torch import Tensor, nn

from .offset_bias import WindowTable


class UndirectedPositionBias(WindowTable):
    """logit + table[head, abs(row offset), abs(column offset)]: a learned bias that is the same
    left and right (attention bias, LeViT, Graham et al., ICCV 2021, Eq. 1; EfficientFormer, Li et
    al., NeurIPS 2022; TinyViT, Wu et al., ECCV 2022).

    Args:
        num_heads: attention heads.
        window_size: (Wh, Ww), the grid of the table; set as for :class:`RelativePositionBias`.
        num_prefix_tokens: tokens in front of the grid; see :class:`OffsetBiasEncoding`.
        prefix_bias: False adds nothing to pairs with a prefix token.
        resize: how to treat grids of another size than the table. None: smaller grids use its
            entries for short distances, and larger ones are an error. 'bicubic' (as TinyViT's
            release) or 'bicubic_antialias' (as timm): the table is resized to each grid, and to
            that of each image in a padded batch.

    Parameters: ``attention_biases`` (heads, Wh * Ww), named and ordered as in the releases.

    Keys on a coarser grid use the entry of the nearest whole distance.

    Raises:
        ValueError: for bad sizes, an unknown ``resize``, or a grid larger than the table with
            ``resize=None``.

    Differs from the releases, which resize the table once, before fine-tuning.
    """

    variants = {'undirected-bias': ("LeViT's biases by distance", dict(resize='bicubic'))}
    resizings = ('bicubic', 'bicubic_antialias')
    signed = False

    def _make_table(self) -> None:
        self.attention_biases = nn.Parameter(
            torch.empty(self.num_heads, self.table_size[0] * self.table_size[1]))

    def reset_parameters(self) -> None:
        """Set the table to zero, as the releases do."""
        self.start_at_zero()

    def _whole_table(self) -> Tensor:
        return self.attention_biases.view(-1, *self.table_size)
