"""Norms of the channels of tokens, by the names that options have for them."""
from __future__ import annotations

import torch
from torch import Tensor, nn


class RMSNorm(nn.LayerNorm):
    """x / sqrt(mean(x ** 2) + eps) * weight over the channels of each token (Zhang and Sennrich,
    NeurIPS 2019, Eq. 4), computed in at least float32. ``torch.nn.RMSNorm`` is younger than the
    oldest PyTorch that is supported. As a LayerNorm without bias, it is treated as a norm by
    optimizers.

    Args:
        channels: of a token, or of one of its heads.
        eps: epsilon.
    """

    def __init__(self, channels: int, eps: float = 1e-6) -> None:
        super().__init__(channels, eps=eps, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., channels) -> (..., channels), in the dtype of ``x``."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (wide * self.weight).to(x.dtype)


#: The kinds of norms by the names of the option ``norm``.
NORMS: dict[str, type[nn.LayerNorm]] = {'layer': nn.LayerNorm, 'rms': RMSNorm}
