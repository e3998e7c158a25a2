"""Cosine attention: cosines of queries and keys instead of products (Swin V2, CVPR 2022)."""
from __future__ import annotations

import math

import torch
from torch import Tensor, nn

#: Largest scale, and so largest logit, as in the release (a temperature of at least 0.01).
MAX_SCALE = 100.0


class CosineScale(nn.Module):
    """Scales queries and keys for cosine attention (Swin Transformer V2, CVPR 2022, Eq. 2): their
    product divided by sqrt(head_dims) is cos(q, k) * scale, with a learned scale for each head.

    Args:
        num_heads: attention heads.

    The parameter ``logit_scale`` (heads, 1, 1) is the logarithm of the scale. It starts at log(10),
    is limited to log(100), and has no weight decay.

    Differences from the release: norms of vectors are computed in float32. A zero vector (a key
    without bias in the padding of a window) gets no gradient; in the release its gradient is
    multiplied by 1e12, which overflows in half precision. Masked pairs have a weight of zero; the
    release subtracts 100 from their logits, which is not enough for scales near 100.
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.logit_scale = nn.Parameter(torch.full((num_heads, 1, 1), math.log(10.0)))

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Return queries and keys, each (B, heads, L, head_dims), as unit vectors, of which the
        queries carry the learned scale."""
        return scaled_cosines(q, k, self.logit_scale)


def scaled_cosines(q: Tensor, k: Tensor, logit_scale: Tensor) -> tuple[Tensor, Tensor]:
    """What :class:`CosineScale` returns for its parameter ``logit_scale``."""
    scale = logit_scale.clamp(max=math.log(MAX_SCALE)).exp() * q.shape[-1] ** 0.5
    return (unit(q) * scale).to(q.dtype), unit(k).to(k.dtype)


def unit(x: Tensor) -> Tensor:
    """Vectors (..., D) of length 1, in float32 or float64; zeros stay zeros."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    return wide / length.masked_fill(length < 1e-12, float('inf'))
