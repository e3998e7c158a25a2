"""SwinV2's continuous bias over logarithmic offsets, and timm's of its ViTs (vit_relpos)."""
from __future__ import annotations

import torch
from torch import Tensor, nn

from ..functional.grids import Grid, GridLike, as_grid
from .checks import check_at_least, check_choices
from .offset_bias import OffsetBiasEncoding, linear_of_offsets, table_of_network


class LogSpacedCPB(OffsetBiasEncoding):
    """A bias computed from the offset by a small network, so that it carries over to windows of
    any size (Swin Transformer V2, CVPR 2022, Eq. 3-4).

    An offset d of an axis, query minus key, is divided by the longest offset of the window it was
    trained on, times 8, and made logarithmic: sign(x) * log2(1 + abs(x)) / 3. Two such coordinates
    pass a network 2 -> hidden -> heads with a ReLU; the bias is 16 * sigmoid of the result. timm's
    ViTs with relative positions (vit_relpos, mode 'cr') take sign(d) * log(1 + abs(d)), whatever
    the window, a network with a second bias of its own, and its result as it is.

    Args:
        num_heads: attention heads.
        hidden_dims: width of the network.
        window_size: (H, W) of the window trained on, which sets the unit of offsets; None takes
            each call's query grid, as the release does without ``pretrained_window_size`` (an image
            in a padded batch is a grid by itself). Mode 'cr' has no unit.
        num_prefix_tokens: tokens in front of the grid. Pairs with one of them get a learned bias a
            head: ``prefix_bias`` (heads, 3) for prefix to cell, cell to prefix and prefix to
            prefix, as BEiT.
        mode: 'swin' or 'cr'.
        prefix_bias: False leaves these biases out: nothing is added to such pairs, as in timm.

    Raises:
        ValueError: for a bad window size, or an unknown mode.

    Differs from the release: any grid and keys on a coarser grid; a one-cell axis has coordinate 0
    (there 0 / 0). The cosine attention of SwinV2 belongs to its attention module, not here, and the
    dropout of an eighth inside the network, with which timm trains its ViTs, is left out.
    """

    def __init__(self, num_heads: int, *, hidden_dims: int = 512,
                 window_size: GridLike | None = None, num_prefix_tokens: int = 0,
                 mode: str = 'swin', prefix_bias: bool = True) -> None:
        super().__init__()
        check_choices(mode=(mode, ('swin', 'cr')))
        check_at_least(1, hidden_dims=hidden_dims)
        self._set_heads(num_heads, num_prefix_tokens, prefix_bias)
        self.mode = mode
        self.window_size = None if window_size is None else as_grid(window_size, 'window_size').hw
        self.cellwise = mode == 'cr' or self.window_size is not None
        self.cpb_mlp = nn.Sequential(nn.Linear(2, hidden_dims), nn.ReLU(inplace=True),
                                     nn.Linear(hidden_dims, num_heads, bias=mode == 'cr'))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Truncated normal, standard deviation 0.02, and biases of 0, as the release."""
        for parameter in self.parameters():
            nn.init.trunc_normal_(parameter, std=0.02)
        for layer in self._layers():
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def start_at_zero(self) -> None:
        """One bias for all pairs, which softmax does not see: 16 * sigmoid(0), or 0 with 'cr'.

        Raises:
            ValueError: where pairs with a prefix token have none and the others 8.
        """
        constant = 0.0 if self.mode == 'cr' else 8.0
        if constant and self.num_prefix_tokens and not hasattr(self, 'prefix_bias'):
            raise ValueError('zero_init=True: LogSpacedCPB with prefix_bias=False and prefix '
                             'tokens changes attention whatever its weights')
        for parameter in self._layers()[1].parameters():
            nn.init.zeros_(parameter)
        if hasattr(self, 'prefix_bias'):
            nn.init.constant_(self.prefix_bias, constant)

    def offset_table(self, rows: Tensor, cols: Tensor, query: Grid) -> Tensor:
        """The network's output; see :class:`OffsetBiasEncoding`."""
        unit = query.hw if self.window_size is None else self.window_size
        return self._table(rows, cols, unit)

    def _layers(self) -> tuple[nn.Linear, nn.Linear]:
        hidden, out = self.cpb_mlp[0], self.cpb_mlp[2]
        assert isinstance(hidden, nn.Linear) and isinstance(out, nn.Linear)
        return hidden, out

    def _table(self, row: Tensor, col: Tensor, unit: tuple[int, int]) -> Tensor:
        """Bias (heads, rows, cols) of real offsets, query minus key."""
        axes = []
        for offset, length in zip((row, col), unit, strict=True):
            if self.mode == 'cr':
                log = offset.sign() * torch.log(offset.abs() + 1.0)
            else:
                scaled = offset * (8.0 / max(length - 1, 1))
                log = scaled.sign() * torch.log2(scaled.abs() + 1.0) / 3.0
            axes.append(log.to(self._layers()[0].weight.dtype))
        rows, cols = axes
        return table_of_network(self._rows, rows, cols, self._layers()[0].out_features)

    def _rows(self, row: Tensor, col: Tensor) -> Tensor:
        """Bias (rows, cols, heads) of scaled offsets."""
        hidden, out = self._layers()
        bias: Tensor = out(linear_of_offsets(hidden, row, col).relu())
        return bias if self.mode == 'cr' else 16.0 * torch.sigmoid(bias)
