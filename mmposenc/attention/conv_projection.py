"""Self-attention with queries, keys and values from convolutions of the tokens (CvT)."""
from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..functional.grids import Grid, as_grid
from ..functional.linear import project
from ..functional.masking import join_prefix, map_to_tokens, split_prefix, tokens_to_map
from .multihead import MultiheadAttention, split_heads


class ConvProjectionAttention(MultiheadAttention):
    """Self-attention with a depthwise convolution before each of the projections to queries, keys
    and values (CvT, Wu et al., ICCV 2021, Eq. 2, without striding), the baseline of CPVT (Sec. 5).

    Args:
        embed_dims, num_heads: as in :class:`MultiheadAttention`.
        kernel_size: odd side of the kernels, in tokens.
        attention: further arguments of :class:`MultiheadAttention`.

    Additional parameters: ``conv_q``, ``conv_k`` and ``conv_v``, depthwise with bias and zero
    padding, 3 * C * (k * k + 1). Prefix tokens skip the convolutions; padded tokens are zero in
    them.

    Raises:
        ValueError: the kernel is even, or as in MultiheadAttention.

    Difference from CvT: no BatchNorm between the two projections, which gives CPVT's number of
    parameters, 5,685,352 for the tiny model.
    """

    def __init__(self, embed_dims: int, num_heads: int, *, kernel_size: int = 3,
                 **attention: Any) -> None:
        super().__init__(embed_dims, num_heads, **attention)
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ValueError(f'kernel_size={kernel_size} must be odd and positive, so that a token '
                             f'is the centre of its window')
        self.conv_q, self.conv_k, self.conv_v = (
            nn.Conv2d(embed_dims, embed_dims, kernel_size, padding=kernel_size // 2,
                      groups=embed_dims) for _ in range(3))

    def _project(self, x: Tensor, x_qk: Tensor | None = None, grid: Grid | None = None,
                 padding: Tensor | None = None) -> tuple[Tensor, ...]:
        """Project tokens to q, k and v as the base class does, after a convolution of the tokens of
        the grid."""
        assert grid is not None
        hw_shape, qkv = as_grid(grid).hw, list[Tensor]()
        for index, (conv, source) in enumerate((
                (self.conv_q, x_qk), (self.conv_k, x_qk), (self.conv_v, None))):
            prefix, tokens = split_prefix(x if source is None else source, self.num_prefix_tokens)
            if padding is not None:
                tokens = tokens.masked_fill(padding[:, self.num_prefix_tokens:, None], 0)
            maps = conv(tokens_to_map(tokens.contiguous(), hw_shape))
            channels = slice(index * self.embed_dims, (index + 1) * self.embed_dims)
            projected = project(self.qkv, join_prefix(prefix, map_to_tokens(maps)), channels)
            qkv += split_heads(projected, self.num_heads)
        return tuple(qkv)
