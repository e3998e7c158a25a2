"""Tables of relative position biases, as in Swin and BEiT."""
from __future__ import annotations

import torch
from torch import Tensor, nn

from ..functional.bias_tables import RESIZINGS
from .offset_bias import WindowTable


class RelativePositionBias(WindowTable):
    """logit + table[head, offset]: a learned number for each head and offset in a window (Swin
    Transformer, ICCV 2021, Eq. 4; with a class token: BEiT, ICLR 2022, Sec. 2.4).

    Args:
        num_heads: attention heads.
        window_size: (Wh, Ww), the grid of the table. Window attention sets it to the window, and
            backbones to their grid at ``img_size``.
        num_prefix_tokens: tokens in front of the grid; see :class:`OffsetBiasEncoding`.
        prefix_bias: False adds nothing to pairs with a prefix token.
        resize: how to treat grids of another size than the table. None: smaller grids use its
            middle, and larger ones are an error. 'geometric' (as timm's BEiT), 'geometric-cubic'
            (as BEiT's release) or 'bicubic' (as Swin's): the table is resized to each grid
            (:func:`mmposenc.functional.bias_tables.resize_bias_table`), and to that of each image
            in a padded batch.

    Parameters: ``relative_position_bias_table`` ((2 Wh - 1) * (2 Ww - 1), heads), by query minus
    key, rows first; named and ordered as in the release and in mmpretrain.

    Keys on a coarser grid use the entry of the nearest whole offset.

    Raises:
        ValueError: for bad sizes, an unknown ``resize``, or a grid larger than the table with
            ``resize=None``.

    Differs from the releases, which resize the table once, before fine-tuning.
    """

    variants = {'swin-bias': ("Swin's table of biases", dict(resize='geometric'))}
    resizings = RESIZINGS

    def _make_table(self) -> None:
        if self.resize == 'geometric-cubic' and 2 in self.sides:
            raise ValueError(f'window_size={self.sides} with resize={self.resize!r}: sides '
                             f'must not be 2, because a cubic spline needs more than three offsets')
        self.relative_position_bias_table = nn.Parameter(
            torch.empty(self.table_size[0] * self.table_size[1], self.num_heads))

    def reset_parameters(self) -> None:
        """Draw the table from a truncated normal distribution with standard deviation 0.02."""
        for table in self.parameters():
            nn.init.trunc_normal_(table, std=0.02)

    def _whole_table(self) -> Tensor:
        return self.relative_position_bias_table.t().reshape(-1, *self.table_size)
