"""Adaptive context pooling: weighted means over neighbourhoods whose size each token chooses."""
from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .context_pool_blocks import pool_in_blocks
from .grids import GridLike, as_grid, check_tokens
from .pooling_kernels import KERNELS, axis_distances, axis_logits

FORMS = ('auto', 'definition', 'exact', 'windowed')
#: 'auto' takes the exact form up to so many tokens: its cost grows with their square.
EXACT_TOKENS = 16384
#: Compiled models take the definition, which is plain tensor arithmetic, up to so many tokens.
COMPILED_TOKENS = 1024
#: Weights that differ by more than exp(this) within an image are summed with logarithms instead:
#: as float32 factors the small ones would vanish beside the large, and their tokens with them.
MAX_RANGE = 40.0
#: Pairs of tokens that the form with logarithms looks at together.
STABLE_PAIRS = 2 ** 20


def context_pool(x: Tensor, weight_logits: Tensor, sigma: Tensor, hw_shape: GridLike, *,
                 form: str = 'auto', truncate: float = 5.0, kernel: str = 'gaussian',
                 causal: bool = False) -> Tensor:
    """y_i = sum_j w_j g_ij x_j / sum_j w_j g_ij with w = exp(weight_logits) and g_ij the Gaussian
    of the distance of cells i and j with deviation sigma_i (ContextPool, Huang et al., ICML 2022,
    Eq. 2-4).

    Args:
        x: (B, H*W, C) tokens of a map, row by row; a sequence is a map (1, L).
        weight_logits: (B, H*W); -inf marks a token that takes no part, such as padding: it comes
            back as it is.
        sigma: (B, H*W) in cells, >= 0. 0 is the identity, inf the weighted mean of all tokens.
        hw_shape: (H, W).
        form: 'definition' builds the (L, L) weights and can be differentiated twice. 'exact' equals
            it to rounding and builds a few of them at a time, in the backward pass again; memory is
            linear in L. 'windowed' also leaves out what lies further than ``truncate * sigma_i``
            along a row or column; :func:`context_pool_error_bound` says how much that can change.
            'auto' is exact up to 16,384 tokens and windowed above.
        truncate: half-width of the windowed form's windows in units of sigma; others ignore it.
        kernel: 'gaussian', or 'window': 1 up to a distance of sigma along rows and columns, and a
            ramp of one cell to 0.
        causal: tokens see themselves and those before them; for sequences (H = 1) only.

    Returns:
        (B, H*W, C) in the dtype of x; sums are float32 or float64.

    Raises:
        ValueError: for shapes that disagree, an unknown form or kernel, a negative or NaN sigma, a
            NaN or inf weight logit, an image without tokens, causal maps.

    There is no release; the decisions are listed in docs/context_pool.md. ``sigma`` has a gradient
    in every form.
    """
    height, width = _check(x, weight_logits, sigma, hw_shape, form, truncate, kernel, causal)
    if form == 'auto':
        form = _choose(x)
    dtype = torch.promote_types(x.dtype, torch.float32)
    logits, sizes = weight_logits.to(dtype), sigma.to(dtype)
    with full_precision(x):
        if form == 'definition':
            out = _definition(x.to(dtype), logits, sizes, (height, width), kernel, causal)
        else:
            out = _by_value(x.to(dtype), logits, sizes, (height, width), kernel, causal,
                            truncate if form == 'windowed' else None)
    return out.to(x.dtype)


def context_pool_error_bound(weight_logits: Tensor, sigma: Tensor, hw_shape: GridLike,
                             truncate: float = 5.0) -> Tensor:
    """How far the windowed form can be from the exact one, for each token.

    The windows leave out a share e of a token's weights, and the output moves by at most e times
    the span (largest minus smallest) of each channel over the image. With w_max and w_i the largest
    weight and the token's own, T the sum of exp(-t^2 / (2 sigma^2)) over whole distances t beyond
    the window and S over all t: e <= (w_max / w_i) * 2 T S, because what is left out lies beyond
    the window in rows or in columns, and the token itself is never left out.

    Args:
        weight_logits, sigma, hw_shape, truncate: as for :func:`context_pool`.

    Returns:
        (B, H*W), the bound on e, at most 1; 0 for tokens that take no part.
    """
    height, width = as_grid(hw_shape).hw
    logits, sigma = weight_logits.double(), sigma.double().clamp_min(1e-3)
    valid = torch.isfinite(logits)
    ratio = (logits.amax(1, keepdim=True) - logits).exp()
    sides = []
    for length in (height, width):
        distances = torch.arange(1, length, dtype=torch.float64, device=sigma.device)
        g = (-0.5 * (distances / sigma[..., None]).square()).exp()
        beyond = 2 * (g * (distances > truncate * sigma[..., None])).sum(-1)
        sides.append((beyond, 1 + 2 * g.sum(-1)))
    (rows_t, rows_s), (cols_t, cols_s) = sides
    share = ratio * (rows_t * cols_s + rows_s * cols_t)
    return torch.where(valid, share.clamp(max=1.0), 0.0)


def full_precision(like: Tensor) -> AbstractContextManager[object]:
    """A region without autocast, which the meta device has not."""
    return nullcontext() if like.is_meta else torch.autocast(like.device.type, enabled=False)


def _choose(x: Tensor) -> str:
    if x.is_meta or (torch.compiler.is_compiling() and x.shape[1] <= COMPILED_TOKENS):
        return 'definition'
    return 'exact' if x.shape[1] <= EXACT_TOKENS else 'windowed'


def _definition(x: Tensor, logits: Tensor, sigma: Tensor, hw_shape: tuple[int, int], kernel: str,
                causal: bool, queries: slice = slice(None), cut: float = math.inf) -> Tensor:
    """Some rows of softmax(weight_logits + log g) x."""
    height, width = hw_shape
    at = torch.arange(height * width, device=x.device)[queries]
    some = sigma[:, queries, None]
    rows = axis_logits(kernel, axis_distances(height, sigma)[at // width], some, cut, False)
    cols = axis_logits(kernel, axis_distances(width, sigma)[at % width], some, cut, causal)
    pairs = (rows[..., None] + cols[..., None, :]).flatten(2) + logits[:, None]
    valid = torch.isfinite(logits[:, queries, None])
    # A token without weight may have no neighbour either: a softmax over nothing is NaN.
    pooled = torch.softmax(torch.where(valid, pairs, 0), -1) @ x
    return torch.where(valid, pooled, x[:, queries])


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _by_value(x: Tensor, logits: Tensor, sigma: Tensor, hw_shape: tuple[int, int], kernel: str,
              causal: bool, truncate: float | None) -> Tensor:
    """The form that the range of the weights allows."""
    valid = torch.isfinite(logits)
    top = logits.detach().amax(1, keepdim=True)
    lowest = logits.detach().masked_fill(~valid, math.inf).amin(1, keepdim=True)
    spread = float((top - lowest).max())
    # Below this exponent all tokens together change no digit of the smallest sum.
    cut = spread + math.log(4 * x.shape[1] / torch.finfo(x.dtype).eps)
    if truncate is not None and kernel == 'gaussian':
        cut = min(cut, 0.5 * truncate ** 2)
    if spread <= MAX_RANGE:
        return pool_in_blocks(x, (logits - top).exp(), sigma, hw_shape, kernel, causal, cut)
    step = max(1, STABLE_PAIRS // x.shape[1])
    parts = [checkpoint(_definition, x, logits, sigma, hw_shape, kernel, causal,
                        slice(first, first + step), cut, use_reentrant=False)
             for first in range(0, x.shape[1], step)]
    return torch.cat(parts, 1)


def _check(x: Tensor, weight_logits: Tensor, sigma: Tensor, hw_shape: GridLike, form: str,
           truncate: float, kernel: str, causal: bool) -> tuple[int, int]:
    height, width = check_tokens(x, hw_shape).hw
    for name, each in (('weight_logits', weight_logits), ('sigma', sigma)):
        if each.shape != x.shape[:2]:
            raise ValueError(f'{name} has shape {tuple(each.shape)}; (B, L) = '
                             f'{tuple(x.shape[:2])} is required')
    if form not in FORMS:
        raise ValueError(f'form={form!r} must be one of {FORMS}')
    if kernel not in KERNELS:
        raise ValueError(f'kernel={kernel!r} must be one of {KERNELS}')
    if not truncate > 0:
        raise ValueError(f'truncate={truncate} must be positive')
    if causal and height != 1:
        raise ValueError(f'causal=True needs a sequence, hw_shape=(1, L), not ({height}, {width})')
    if not (x.is_meta or torch.compiler.is_compiling()):
        if not bool((sigma >= 0).all()):
            raise ValueError('sigma has negative or NaN values; sizes in cells are >= 0')
        # A sum is NaN if a value is, and inf if a value is.
        highest = weight_logits.detach().amax(1)
        if not bool(torch.isfinite(highest).all()):
            raise ValueError('weight_logits has NaN or inf values, or an image where all are -inf; '
                             'give every image a token with a finite weight')
    return height, width
