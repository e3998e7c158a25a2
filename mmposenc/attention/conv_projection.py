"""Self-attention with queries, keys and values from convolutions of the tokens (CvT)."""
from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..functional.grids import Grid, GridLike, check_tokens
from ..functional.masking import join_prefix, map_to_tokens, split_prefix, tokens_to_map
from .linear import some_channels, split_heads
from .multihead import MultiheadAttention


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

    def forward(self, x: Tensor, hw_shape: GridLike, key_padding_mask: Tensor | None = None,
                need_weights: bool = False, *, x_qk: Tensor | None = None
                ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend; arguments, result and errors are those of :class:`MultiheadAttention`."""
        grid = check_tokens(x, hw_shape, self.num_prefix_tokens)
        if x_qk is not None and x_qk.shape != x.shape:
            raise ValueError(f'x_qk has shape {tuple(x_qk.shape)}; it must be that of x, '
                             f'{tuple(x.shape)}')
        x_qk = x if x_qk is None else x_qk
        qkv: list[Tensor] = []
        for index, (conv, source) in enumerate((
                (self.conv_q, x_qk), (self.conv_k, x_qk), (self.conv_v, x))):
            channels = slice(index * self.embed_dims, (index + 1) * self.embed_dims)
            convolved = self._convolve(conv, source, grid, key_padding_mask)
            qkv += split_heads(some_channels(self.qkv, convolved, channels), self.num_heads)
        return self._attend(tuple(qkv), grid, key_padding_mask=key_padding_mask,
                            need_weights=need_weights)

    def _convolve(self, conv: nn.Module, x: Tensor, grid: Grid, key_padding_mask: Tensor | None
                  ) -> Tensor:
        """(B, P + L, C) with the grid's tokens convolved."""
        prefix, tokens = split_prefix(x, self.num_prefix_tokens)
        if key_padding_mask is not None:
            padding = key_padding_mask[:, self.num_prefix_tokens:, None]
            tokens = tokens.masked_fill(padding, 0)
        convolved = map_to_tokens(conv(tokens_to_map(tokens.contiguous(), grid.hw)))
        return join_prefix(prefix, convolved)
