"""How much a token counts for another by their distance along one axis of a map."""
from __future__ import annotations

import math

import torch
from torch import Tensor

KERNELS = ('gaussian', 'window')
#: Sizes below count as this many cells: the nearest neighbour's exponent is -5e5 there already.
MIN_SIGMA = 1e-3
#: Cells over which the edge of a window falls from 1 to 0, so that its size has a gradient
#: (Sukhbaatar et al., ACL 2019, Eq. 4).
RAMP = 1.0


def axis_weights(kernel: str, distance: Tensor, sigma: Tensor, cut: float, causal: bool,
                 slopes: bool = True) -> tuple[Tensor, Tensor | None]:
    """Weights of one axis and their derivatives.

    Args:
        kernel: 'gaussian', exp(-distance^2 / (2 sigma^2)), or 'window', 1 up to a distance of
            sigma and falling to 0 over the next ``RAMP`` cells.
        distance: query minus key, in cells.
        sigma: in cells; the two broadcast.
        cut: a Gaussian below exp(-cut) counts as 0.
        causal: keys behind their query only.
        slopes: whether derivatives are wanted.

    Returns:
        Weights and their derivatives by sigma, in the common shape; None for those not wanted.
    """
    slope = None
    if kernel == 'gaussian':
        inverse = 1.0 / sigma.clamp_min(MIN_SIGMA)
        squares = distance.square()
        # Below the cut, but not far: an exponential that underflows takes up to 30 times as long.
        weights = (squares * (-0.5 * inverse.square())).clamp_min_(-cut - 1).exp_()
        # Not only because they are nothing: denormal numbers slow products down on some processors.
        torch.threshold_(weights, math.exp(-cut), 0)
        if slopes:
            slope = (weights * squares).mul_(inverse.pow(3))
    else:
        left = (sigma + RAMP - distance.abs()) / RAMP
        weights = left.clamp(0, 1)
        if slopes:
            slope = ((left > 0) & (left < 1)).to(weights.dtype) / RAMP
    if causal:
        later = distance < 0
        weights.masked_fill_(later, 0)
        slope = None if slope is None else slope.masked_fill_(later, 0)
    return weights, slope


def axis_logits(kernel: str, distance: Tensor, sigma: Tensor, cut: float, causal: bool) -> Tensor:
    """Logarithms of :func:`axis_weights`, -inf for 0, with gradients by autograd."""
    if kernel == 'gaussian':
        logits = -0.5 * (distance * (1.0 / sigma.clamp_min(MIN_SIGMA))).square()
        none = logits < -cut
    else:
        left = (sigma + RAMP - distance.abs()) / RAMP
        none = left <= 0
        # The logarithm must not meet a zero: its gradient would be NaN even where it is not taken.
        logits = left.masked_fill(none, 1).clamp(max=1).log()
    if causal:
        none = none | (distance < 0)
    return logits.masked_fill(none, -math.inf)


def reach(kernel: str, sigma: float, cut: float) -> float:
    """Largest distance in cells with a weight above 0."""
    if kernel == 'gaussian':
        return max(sigma, MIN_SIGMA) * math.sqrt(2 * cut)
    return sigma + RAMP


def axis_distances(length: int, like: Tensor) -> Tensor:
    """Query minus key of every pair along an axis, (length, length)."""
    at = torch.arange(length, device=like.device, dtype=like.dtype)
    return at[:, None] - at
