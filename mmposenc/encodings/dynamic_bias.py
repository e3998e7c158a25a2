"""Bias of CrossFormer, computed from the offset by a small network."""
from __future__ import annotations

from torch import Tensor, nn

from ..functional.grids import Grid
from ..functional.tracing import layer_dtype
from .checks import check_at_least
from .offset_bias import OffsetBiasEncoding, linear_of_offsets, table_of_network


class DynamicPositionBias(OffsetBiasEncoding):
    """logit + network(row offset, column offset), query minus key in cells (dynamic position bias,
    CrossFormer, Wang et al., ICLR 2022, Sec. 3.2.2): 2 -> D -> D -> D -> heads, with a LayerNorm
    and a ReLU before each layer but the first.

    Args:
        head_dims: channels of a head.
        num_heads: attention heads.
        pos_dims: D; None is head_dims * num_heads / 16, as in the release, but at least 4.
        residual: residual connections around the second and the third layer.
        num_prefix_tokens: tokens in front of the grid; see :class:`OffsetBiasEncoding`.
        prefix_bias: False adds nothing to pairs with a prefix token.

    Parameters: ``pos_proj``, ``pos1``, ``pos2`` and ``pos3``, named as in the release.

    Raises:
        ValueError: for bad sizes.

    Differs from the release: supports any grid, and keys on a coarser grid.
    """

    variants = {'dpb': ("CrossFormer's network of biases", {})}
    cellwise = True

    def __init__(self, head_dims: int, num_heads: int, *, pos_dims: int | None = None,
                 residual: bool = False, num_prefix_tokens: int = 0, prefix_bias: bool = True
                 ) -> None:
        super().__init__()
        check_at_least(1, head_dims=head_dims, pos_dims=pos_dims)
        self._set_heads(num_heads, num_prefix_tokens, prefix_bias)
        self.pos_dims = max(head_dims * num_heads // 16, 4) if pos_dims is None else pos_dims
        self.residual = residual
        self.pos_proj = nn.Linear(2, self.pos_dims)
        self.pos1, self.pos2, self.pos3 = (
            nn.Sequential(nn.LayerNorm(self.pos_dims), nn.ReLU(),
                          nn.Linear(self.pos_dims, dims))
            for dims in (self.pos_dims, self.pos_dims, num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights from a truncated normal distribution with standard deviation 0.02 and set
        biases to zero, as the release does."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.LayerNorm):
                module.reset_parameters()
        if hasattr(self, 'prefix_bias'):
            nn.init.zeros_(self.prefix_bias)

    def start_at_zero(self) -> None:
        """Set the last layer to zero, so that the bias is zero."""
        for parameter in self.pos3[-1].parameters():
            nn.init.zeros_(parameter)
        if hasattr(self, 'prefix_bias'):
            nn.init.zeros_(self.prefix_bias)

    def offset_table(self, row_offsets: Tensor, col_offsets: Tensor, q_grid: Grid) -> Tensor:
        """The bias that the network computes; see :class:`OffsetBiasEncoding`."""
        dtype = layer_dtype(self.pos_proj)
        return table_of_network(self._bias_of_offsets, row_offsets.to(dtype), col_offsets.to(dtype),
                                self.pos_dims)

    def _bias_of_offsets(self, row: Tensor, col: Tensor) -> Tensor:
        """The output of the network for all offsets, (rows, cols, heads)."""
        features = linear_of_offsets(self.pos_proj, row, col)
        for layers in (self.pos1, self.pos2):
            features = features + layers(features) if self.residual else layers(features)
        return self.pos3(features)
