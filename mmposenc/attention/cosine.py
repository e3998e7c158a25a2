"""Cosine attention: angles of queries and keys in place of products (Swin V2, CVPR 2022)."""
from __future__ import annotations

import math

import torch
from torch import Tensor, nn

#: A head's logits are at most this, as in the release (a temperature of at least 0.01).
MAX_SCALE = 100.0


class CosineScale(nn.Module):
    """Queries and keys of cosine attention (Swin Transformer V2, CVPR 2022, Eq. 2): their product,
    divided by sqrt(head_dims) as in any attention, is cos(q, k) * scale, with a learned scale a
    head.

    Args:
        num_heads: attention heads.

    The parameter ``logit_scale`` (heads, 1, 1) is the logarithm of the scale; it starts at log(10),
    counts up to log(100), and takes no weight decay.

    Differs from the release: lengths are taken in float32. A vector of zeros, as a key without bias
    is where zeros fill a window up, passes no gradient (there 1e12 times what reaches it, which
    half precision cannot hold). What may not meet gets no weight at all (there 100 is taken off the
    logits, which is not enough at a scale near 100).
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.logit_scale = nn.Parameter(torch.full((num_heads, 1, 1), math.log(10.0)))

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """(B, heads, L, head_dims) each, of the same shapes and dtypes as they came."""
        return scaled_cosines(q, k, self.logit_scale)


def scaled_cosines(q: Tensor, k: Tensor, logit_scale: Tensor) -> tuple[Tensor, Tensor]:
    """What :class:`CosineScale` makes of queries and keys, by its parameter."""
    scale = logit_scale.clamp(max=math.log(MAX_SCALE)).exp() * q.shape[-1] ** 0.5
    return (unit(q) * scale).to(q.dtype), unit(k).to(k.dtype)


def unit(x: Tensor) -> Tensor:
    """Vectors (..., D) of length 1, in float32 or float64; zeros stay zeros."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    return wide / length.masked_fill(length < 1e-12, float('inf'))  # type: ignore[no-any-return]
