"""Adaptive context pooling: weighted means over neighbourhoods whose size each token chooses."""
from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..grids import GridLike, check_tokens
from ..tracing import (
    full_precision,
    is_compiling,
    is_exporting,
    is_transforming,
    may_branch_on,
    uncompiled,
)
from .blockwise import pool_in_blocks
from .kernels import KERNELS, pool_by_definition, pool_by_definition_in_parts
from .partition import Group, cells_at_stride, find_groups

IMPLEMENTATIONS = ('auto', 'reference', 'exact')
#: Compiled models take the reference, which is plain tensor arithmetic, up to this number of
#: tokens.
COMPILED_TOKENS = 1024
#: Factors of float32 and float64 hold weights that differ by exp(this) within an image: beyond, the
#: small ones would vanish beside the large, and their tokens with them. So float64 takes over from
#: float32, and sums of exponentials stabilised row by row from float64.
MAX_RANGE = {torch.float32: 40.0, torch.float64: 300.0}


def context_pool(x: Tensor, weight_logits: Tensor, sigma: Tensor, hw_shape: GridLike, *,
                 implementation: str = 'auto', kernel: str = 'gaussian', causal: bool = False,
                 stride: int = 1) -> Tensor:
    """y_i = sum_j w_j g_ij x_j / sum_j w_j g_ij with w = exp(weight_logits) and g_ij the Gaussian
    of the distance of cells i and j with deviation sigma_i (ContextPool, Huang et al., ICML 2022,
    Eq. 2-4).

    Args:
        x: (B, H*W, C) tokens of a map, row by row; a sequence is a map (1, L).
        weight_logits: (B, H*W); -inf marks a token that takes no part, such as padding: it comes
            back as it is.
        sigma: (B, H*W) in cells, >= 0. 0 is the identity, inf the weighted mean of all tokens.
        hw_shape: (H, W).
        implementation: 'reference' builds the (L, L) weights and can be differentiated twice.
            'exact' equals it to rounding and builds a few of them at a time, in the backward pass
            again; memory is linear in L. 'auto' is exact, but the reference where that is needed.
        kernel: 'gaussian', or 'window': 1 up to a distance of sigma along rows and columns, and a
            ramp of one cell to 0.
        causal: tokens see themselves and those before them; for sequences (H = 1) only.
        stride: pool for the cells in every so many-th row and column only, from the first: what a
            ConvNet needs that pools and subsamples.

    Returns:
        (B, Lq, C) in the dtype of x, Lq = H*W or ceil(H / stride) * ceil(W / stride); sums are
        float32 or float64.

    Raises:
        ValueError: for shapes that disagree, an unknown implementation or kernel, a negative or
            NaN sigma, a NaN or inf weight logit, an image without tokens, causal maps.

    There is no release; the decisions are listed in docs/context_pool.md. ``sigma`` has a gradient
    in every implementation.
    """
    height, width = _checked_sides(x, weight_logits, sigma, hw_shape, implementation, kernel,
                                   causal, stride)
    if implementation == 'auto':
        implementation = _chosen_implementation(x)
    cells = cells_at_stride((height, width), stride, x.device)
    dtype = torch.promote_types(x.dtype, torch.float32)
    logits = weight_logits.to(dtype)
    sizes = (sigma if stride == 1 else sigma[:, cells]).to(dtype)
    with full_precision(x):
        if implementation == 'reference':
            _spread_and_groups(weight_logits, sigma)
            out = pool_by_definition(x.to(dtype), logits, sizes, (height, width), cells, kernel,
                                     causal)
        else:
            out = _by_value(x.to(dtype), logits, sizes, (height, width), stride, kernel, causal)
    return out.to(x.dtype)


def _chosen_implementation(x: Tensor) -> str:
    # An exported program takes any number of tokens, and a comparison would fix it.
    if x.is_meta or is_exporting() or is_transforming() or (
            is_compiling() and x.shape[1] <= COMPILED_TOKENS):
        return 'reference'
    return 'exact'


@uncompiled
def _by_value(x: Tensor, logits: Tensor, sigma: Tensor, hw_shape: tuple[int, int], stride: int,
              kernel: str, causal: bool) -> Tensor:
    """Choose and run the implementation that the range of the weights allows."""
    # Found before anything is read, so that the host waits for an accelerator only once.
    query_groups = find_groups(sigma, hw_shape, stride)
    spread, every, groups = _spread_and_groups(logits, sigma, query_groups)
    top = logits.detach().amax(1, keepdim=True)
    # Weights below exp(-cut) are left out: all of them together do not change the last digit of the
    # smallest sum.
    cut = spread + math.log(4 * x.shape[1] / torch.finfo(x.dtype).eps)
    if spread <= MAX_RANGE[torch.float64]:
        wide = x.dtype if spread <= MAX_RANGE[x.dtype] else torch.float64
        return pool_in_blocks(x.to(wide), (logits - top).to(wide).exp(), sigma.to(wide), hw_shape,
                              kernel, causal, cut, stride, every, groups).to(x.dtype)
    return pool_by_definition_in_parts(x, logits, sigma, hw_shape,
                                       cells_at_stride(hw_shape, stride, x.device), kernel, causal,
                                       cut)


def _checked_sides(x: Tensor, weight_logits: Tensor, sigma: Tensor, hw_shape: GridLike,
                   implementation: str, kernel: str, causal: bool, stride: int
                   ) -> tuple[int, int]:
    height, width = check_tokens(x, hw_shape).hw
    for name, each in (('weight_logits', weight_logits), ('sigma', sigma)):
        if each.shape != x.shape[:2]:
            raise ValueError(f'{name} has shape {tuple(each.shape)}; (B, L) = '
                             f'{tuple(x.shape[:2])} is required')
    if implementation not in IMPLEMENTATIONS:
        raise ValueError(f'implementation={implementation!r} must be one of {IMPLEMENTATIONS}')
    if kernel not in KERNELS:
        raise ValueError(f'kernel={kernel!r} must be one of {KERNELS}')
    if stride < 1:
        raise ValueError(f'stride={stride} must be at least 1')
    if causal and height != 1:
        raise ValueError(f'causal=True needs a sequence, hw_shape=(1, L), not ({height}, {width})')
    return height, width


def _spread_and_groups(weight_logits: Tensor, sigma: Tensor, groups: Sequence[Group] = ()
                       ) -> tuple[float, bool, list[Group]]:
    """Read from the device at once: the largest difference between weight logits of an image's
    tokens, whether all tokens take part, and the corners of the groups.

    Raises:
        ValueError: for a bad value.
    """
    if not may_branch_on(weight_logits) or not len(weight_logits):
        return math.inf, False, list(groups)
    logits = weight_logits.detach()
    absent = logits == -math.inf
    # A maximum shows bad values: it is NaN if a value is NaN, and inf if a value is inf.
    highest = logits.amax(1)
    lowest = logits.masked_fill(absent, math.inf).amin(1)
    facts = torch.stack((
        (sigma.detach() >= 0).all().double(), torch.isfinite(highest).all().double(),
        1 - absent.any().double(), (highest - lowest).max().double()))
    corners = [torch.as_tensor(each.corners) for each in groups]
    good_sizes, good_logits, every, spread, *read = torch.cat((facts, *corners)).tolist()
    if not good_sizes:
        raise ValueError('sigma has negative or NaN values; sizes in cells are >= 0')
    if not good_logits:
        raise ValueError('weight_logits has NaN or inf values, or an image where all are -inf; '
                         'give every image a token with a finite weight')
    return spread, bool(every), [each._replace(corners=read[5 * at:5 * at + 5])
                                 for at, each in enumerate(groups)]
