"""What predicts the pooling weights and sizes of ContextPool from the tokens."""
from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from ..functional.masking import map_to_tokens, tokens_to_map

PREDICTORS = ('conv', 'mlp', 'attention')


class ConvPredictor(nn.Module):
    """Two convolutions of size 3 with GELU between, on a map or along a sequence.

    Args:
        embed_dims, hidden_dims, out_dims: channels.
        dims: 2 for 3 x 3 on the map, 1 for 3 along the sequence.
        causal: see a token and those before it only.
    """

    def __init__(self, embed_dims: int, hidden_dims: int, out_dims: int, dims: int,
                 causal: bool) -> None:
        super().__init__()
        kernel = (3, 3) if dims == 2 else (1, 3)
        # A causal convolution is padded on one side, in forward.
        padding = (0, 0) if causal else (kernel[0] // 2, 1)
        self.causal = causal
        self.conv1 = nn.Conv2d(embed_dims, hidden_dims, kernel, padding=padding)
        self.conv2 = nn.Conv2d(hidden_dims, out_dims, kernel, padding=padding)

    def forward(self, x: Tensor, hw_shape: tuple[int, int], padding_mask: Tensor | None) -> Tensor:
        """(B, H*W, C), zero where padded, and (B, H*W) or None -> (B, H*W, out_dims)."""
        hidden = F.gelu(self.conv1(self._pad(tokens_to_map(x.contiguous(), hw_shape))))
        if padding_mask is not None:
            hidden = hidden.masked_fill(padding_mask.view(x.shape[0], 1, *hw_shape), 0)
        return map_to_tokens(self.conv2(self._pad(hidden)))

    def _pad(self, x: Tensor) -> Tensor:
        return F.pad(x, (2, 0)) if self.causal else x


class MLPPredictor(nn.Module):
    """Two linear layers with GELU between, on each token by itself."""

    def __init__(self, embed_dims: int, hidden_dims: int, out_dims: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(embed_dims, hidden_dims)
        self.fc2 = nn.Linear(hidden_dims, out_dims)

    def forward(self, x: Tensor, hw_shape: tuple[int, int], padding_mask: Tensor | None) -> Tensor:
        """As :meth:`ConvPredictor.forward`."""
        return self.fc2(F.gelu(self.fc1(x)))  # type: ignore[no-any-return]


class AttentionPredictor(nn.Module):
    """Attention of one head over all tokens, GELU, and a linear layer."""

    def __init__(self, embed_dims: int, hidden_dims: int, out_dims: int, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.qkv = nn.Linear(embed_dims, 3 * hidden_dims)
        self.proj = nn.Linear(hidden_dims, out_dims)

    def forward(self, x: Tensor, hw_shape: tuple[int, int], padding_mask: Tensor | None) -> Tensor:
        """As :meth:`ConvPredictor.forward`."""
        q, k, v = self.qkv(x)[:, None].chunk(3, -1)
        mask = None if padding_mask is None else ~padding_mask[:, None, None]
        if self.causal:
            # Padding stands behind the sequence, so no valid token sees it.
            mask = None
        hidden = F.scaled_dot_product_attention(q, k, v, mask, is_causal=self.causal)[:, 0]
        return self.proj(F.gelu(hidden))  # type: ignore[no-any-return]


def build_predictor(kind: str, embed_dims: int, hidden_dims: int, out_dims: int, dims: int,
                    causal: bool) -> nn.Module:
    """The predictor of that name."""
    if kind == 'conv':
        return ConvPredictor(embed_dims, hidden_dims, out_dims, dims, causal)
    if kind == 'mlp':
        return MLPPredictor(embed_dims, hidden_dims, out_dims)
    return AttentionPredictor(embed_dims, hidden_dims, out_dims, causal)
