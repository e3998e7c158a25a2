"""Linear layers that are fast on every CPU."""
from __future__ import annotations

import torch
from torch import Tensor, nn

from ..functional.linear import linear


class Linear(nn.Linear):
    """``nn.Linear`` through :func:`mmposenc.functional.linear.linear`: the same parameters, outputs
    and gradients to rounding, in float32 on an AMD processor with AVX-512 in half of the time."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        return linear(x, self.weight, self.bias)


class QVLinear(Linear):
    """A joint projection to queries, keys and values where keys have no bias (BEiT, EVA-02,
    DINOv3).

    Args:
        embed_dims: C.

    Parameters: ``weight`` (3 C, C), ``q_bias`` and ``v_bias`` (C,).
    """

    def __init__(self, embed_dims: int) -> None:
        super().__init__(embed_dims, 3 * embed_dims, bias=False)
        self.q_bias = nn.Parameter(torch.zeros(embed_dims))
        self.v_bias = nn.Parameter(torch.zeros(embed_dims))

    def joint_bias(self) -> Tensor:
        """(3 C,), zero for the keys."""
        return torch.cat((self.q_bias, torch.zeros_like(self.q_bias), self.v_bias))

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) -> (..., 3 C)."""
        return linear(x, self.weight, self.joint_bias())
