"""How much one token counts for another, depending on their distance along each axis of a map, and
the pooling with these weights."""
from __future__ import annotations

import math

import torch
from torch import Tensor

from ..row_chunks import by_rows

KERNELS = ('gaussian', 'window')
#: Sizes below this many cells are raised to it: already there the exponent of the nearest neighbour
#: is -5e5.
MIN_SIGMA = 1e-3
#: The number of cells over which the edge of a window falls from 1 to 0, so that its size has a
#: gradient (Sukhbaatar et al., ACL 2019, Eq. 4).
RAMP = 1.0
#: The number of pairs of tokens that :func:`pool_by_definition_in_parts` computes at a time.
STABLE_PAIRS = 2 ** 20


def axis_weights(kernel: str, distance: Tensor, sigma: Tensor, cut: float, causal: bool,
                 derivatives: bool = True) -> tuple[Tensor, Tensor | None]:
    """Weights of one axis and their derivatives.

    Args:
        kernel: 'gaussian', exp(-distance^2 / (2 sigma^2)), or 'window', 1 up to a distance of
            sigma and falling to 0 over the next ``RAMP`` cells.
        distance: query minus key, in cells.
        sigma: in cells; the two broadcast.
        cut: a Gaussian below exp(-cut) counts as 0.
        causal: keys after their query have no weight.
        derivatives: whether they are computed.

    Returns:
        Weights and their derivatives by sigma, in the common shape; None for those not wanted.
    """
    derivative = None
    if kernel == 'gaussian':
        inverse = 1.0 / sigma.clamp_min(MIN_SIGMA)
        squares = distance.square()
        # Clamped just below the cut, because an exponential that underflows takes up to 30 times as
        # long.
        weights = (squares * (-0.5 * inverse.square())).clamp_min_(-cut - 1).exp_()
        # Set to zero also because denormal numbers slow products down on some processors.
        torch.threshold_(weights, math.exp(-cut), 0)
        if derivatives:
            derivative = (weights * squares).mul_(inverse.pow(3))
    else:
        left = (sigma + RAMP - distance.abs()) / RAMP
        weights = left.clamp(0, 1)
        if derivatives:
            derivative = ((left > 0) & (left < 1)).to(weights.dtype) / RAMP
    if causal:
        later = distance < 0
        weights.masked_fill_(later, 0)
        derivative = None if derivative is None else derivative.masked_fill_(later, 0)
    return weights, derivative


def axis_logits(kernel: str, distance: Tensor, sigma: Tensor, cut: float, causal: bool) -> Tensor:
    """Logarithms of :func:`axis_weights`, -inf for 0, with gradients by autograd."""
    if kernel == 'gaussian':
        logits = -0.5 * (distance * (1.0 / sigma.clamp_min(MIN_SIGMA))).square()
        none = logits < -cut
    else:
        left = (sigma + RAMP - distance.abs()) / RAMP
        none = left <= 0
        # The logarithm must not meet a zero, because its gradient would be NaN even where it is not
        # used.
        logits = left.masked_fill(none, 1).clamp(max=1).log()
    if causal:
        none = none | (distance < 0)
    return logits.masked_fill(none, -math.inf)


def reach(kernel: str, sigma: float, cut: float) -> float:
    """The distance in cells beyond which the kernel of this size gives no weight."""
    if kernel == 'gaussian':
        return max(sigma, MIN_SIGMA) * math.sqrt(2 * cut)
    return sigma + RAMP


def signed_axis_distances(length: int, like: Tensor) -> Tensor:
    """The distance query minus key of every pair along an axis, (length, length)."""
    at = torch.arange(length, device=like.device, dtype=like.dtype)
    return at[:, None] - at


def pool_by_definition(x: Tensor, logits: Tensor, sigma: Tensor, hw_shape: tuple[int, int],
                       cells: Tensor, kernel: str, causal: bool, cut: float = math.inf,
                       part: Tensor | slice = slice(None),
                       queries_keys: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """The pooled tokens of some cells: rows of softmax(logits_j + log g_ij [+ q_i . k_j]) times x.

    Args:
        x: (B, H*W, C); logits: (B, H*W), -inf for a token that takes no part and comes back.
        sigma: (B, Lq) of the cells.
        hw_shape: (H, W).
        cells: (Lq,), their numbers; ``part`` of them is computed.
        kernel, causal, cut: as for :func:`axis_weights`.
        queries_keys: q (B, Lq, D) and k (B, H*W, D), or None.
    """
    height, width = hw_shape
    at, some = cells[part], sigma[:, part, None]
    row = at // width
    col = at - row * width  # ONNX has no remainder of a division by a symbol.
    rows = axis_logits(kernel, signed_axis_distances(height, sigma)[row], some, cut, False)
    cols = axis_logits(kernel, signed_axis_distances(width, sigma)[col], some, cut, causal)
    pairs = (rows[..., None] + cols[..., None, :]).flatten(2) + logits[:, None]
    if queries_keys is not None:
        pairs = pairs + queries_keys[0][:, part] @ queries_keys[1].transpose(1, 2)
    valid = torch.isfinite(logits[:, at, None])
    # A token without weight may have no neighbour either, and a softmax over nothing would be NaN.
    pooled = torch.softmax(torch.where(valid, pairs, 0), -1) @ x
    return torch.where(valid, pooled, x[:, at])


def pool_by_definition_in_parts(x: Tensor, logits: Tensor, sigma: Tensor, hw_shape: tuple[int, int],
                                cells: Tensor, kernel: str, causal: bool, cut: float = math.inf,
                                queries_keys: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """Compute :func:`pool_by_definition` for a few cells at a time, and again in the backward
    pass."""
    return by_rows(lambda part: pool_by_definition(
        x, logits, sigma, hw_shape, cells, kernel, causal, cut, part, queries_keys),
        torch.arange(len(cells), device=x.device), STABLE_PAIRS // x.shape[1], out_dim=1)
