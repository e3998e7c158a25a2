"""Biases that a small network computes from logarithmic offsets: those of Swin V2, and of timm's
vit_relpos."""
from __future__ import annotations

import torch
from torch import Tensor, nn

from ..functional.grids import Grid, GridLike, as_grid
from ..functional.tracing import are_plain, layer_dtype
from .checks import check_at_least, check_choices
from .offset_bias import OffsetBiasEncoding, linear_of_offsets, offset_pairs, table_of_network


class LogSpacedCPB(OffsetBiasEncoding):
    """A bias that a small network computes from the offset, for windows of any size (Swin
    Transformer V2, CVPR 2022, Eq. 3-4).

    With x the offset of an axis, query minus key, times 8 over the longest offset in the window of
    training, the coordinate is sign(x) * log2(1 + abs(x)) / 3. A network 2 -> hidden -> heads with
    a ReLU gets both coordinates; the bias is 16 * sigmoid of its output. Mode 'cr' (vit_relpos of
    timm) has the coordinate sign(d) * log(1 + abs(d)) of the offset d, a bias in the second layer
    too, and no sigmoid.

    Args:
        num_heads: attention heads.
        hidden_dims: width of the network.
        window_size: (H, W) of the window of training, which sets the unit of offsets. None uses the
            query grid of each call (of each image in a padded batch), as the release does without
            ``pretrained_window_size``. Mode 'cr' ignores it.
        num_prefix_tokens: tokens in front of the grid; see :class:`OffsetBiasEncoding`.
        mode: 'swin' or 'cr'.
        prefix_bias: False adds nothing to pairs with a prefix token, as in timm.

    Raises:
        ValueError: for a bad window size, or an unknown mode.

    Differs from the release: supports any grid and keys on a coarser grid; an axis of one cell has
    coordinate 0 (in the release 0 / 0). The cosine attention of Swin V2 is part of its attention
    module. The network has no dropout (timm trains with 0.125).
    """

    variants = {'log-cpb': ("Swin V2's network of biases", {})}

    def __init__(self, num_heads: int, *, hidden_dims: int = 512,
                 window_size: GridLike | None = None, num_prefix_tokens: int = 0,
                 mode: str = 'swin', prefix_bias: bool = True) -> None:
        super().__init__()
        check_choices(mode=(mode, ('swin', 'cr')))
        check_at_least(1, hidden_dims=hidden_dims)
        self._set_heads(num_heads, num_prefix_tokens, prefix_bias)
        self.mode, self.hidden_dims = mode, hidden_dims
        self.window_size = None if window_size is None else as_grid(window_size, 'window_size').hw
        self.cellwise = mode == 'cr' or self.window_size is not None
        self.cpb_mlp = nn.Sequential(nn.Linear(2, hidden_dims), nn.ReLU(),
                                     nn.Linear(hidden_dims, num_heads, bias=mode == 'cr'))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights from a truncated normal distribution with standard deviation 0.02 and set
        biases to zero, as the release does."""
        for parameter in self.parameters():
            nn.init.trunc_normal_(parameter, std=0.02)
        for layer in self.cpb_mlp:
            if isinstance(layer, nn.Linear) and layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def start_at_zero(self) -> None:
        """Set the bias of all pairs to one constant, which does not change the softmax: 16 *
        sigmoid(0) = 8, or 0 with 'cr'.

        Raises:
            ValueError: in mode 'swin' with prefix tokens and without prefix biases, where pairs
                with a prefix token have 0 and the others 8.
        """
        constant = 0.0 if self.mode == 'cr' else 8.0
        if constant and self.num_prefix_tokens and not hasattr(self, 'prefix_bias'):
            raise ValueError('zero_init=True: LogSpacedCPB with prefix_bias=False and prefix '
                             'tokens changes attention whatever its weights')
        for parameter in self.cpb_mlp[2].parameters():
            nn.init.zeros_(parameter)
        if hasattr(self, 'prefix_bias'):
            nn.init.constant_(self.prefix_bias, constant)

    def offset_table(self, row_offsets: Tensor, col_offsets: Tensor, q_grid: Grid) -> Tensor:
        """The bias that the network computes; see :class:`OffsetBiasEncoding`."""
        axes = []
        for offset, length in zip((row_offsets, col_offsets), self.window_size or q_grid.hw,
                                  strict=True):
            if self.mode == 'cr':
                log = offset.sign() * torch.log(offset.abs() + 1.0)
            else:
                scaled = offset * (8.0 / max(length - 1, 1))
                log = scaled.sign() * torch.log2(scaled.abs() + 1.0) / 3.0
            axes.append(log.to(layer_dtype(self.cpb_mlp)))
        return table_of_network(self._bias_of_scaled_offsets, axes[0], axes[1], self.hidden_dims)

    def _bias_of_scaled_offsets(self, row: Tensor, col: Tensor) -> Tensor:
        """The output of the network for scaled offsets, (rows, cols, heads)."""
        if are_plain(self.cpb_mlp):
            hidden, act, out = self.cpb_mlp
            bias = out(act(linear_of_offsets(hidden, row, col)))
        else:
            bias = self.cpb_mlp(offset_pairs(row, col))
        return bias if self.mode == 'cr' else 16.0 * torch.sigmoid(bias)
