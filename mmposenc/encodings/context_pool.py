"""ContextPool: a weighted mean over a neighbourhood whose size is predicted for each token."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..functional.extents import filled_extents
from ..functional.grids import check_tokens, whole_cells
from ..functional.masking import join_prefix, map_to_tokens, split_prefix, tokens_to_map
from ..functional.pooling.ablations import global_mean, nonlocal_pool, random_mean, window_mean
from ..functional.pooling.adaptive import IMPLEMENTATIONS, context_pool
from ..functional.pooling.partition import cells_at_stride
from ..functional.tracing import full_precision, layer_dtype
from .base import TokenEncoding
from .checks import check_at_least, check_choices, check_positive

WEIGHTS = ('learned', 'unnormalized', 'uniform', 'nonlocal')
LOCALITIES = ('gaussian', 'none', 'fixed_window', 'adaptive_window', 'random_sparse')
SIZE_NORMS = ('sigmoid', 'softmax')


class PoolingPrediction(NamedTuple):
    """What a ContextPool predicts for a map."""

    weight_logits: Tensor  # (B, H*W), -inf at padding
    sigma: Tensor | None  # (B, H*W) in cells


class ConvPredictor(nn.Module):
    """Two convolutions of size 3 with GELU between, on a map or along a sequence.

    Args:
        embed_dims, hidden_dims, out_dims: channels.
        dims: 2 for 3 x 3 on the map, 1 for 3 along the sequence.
        causal: use only a token and those before it.
    """

    def __init__(self, embed_dims: int, hidden_dims: int, out_dims: int, dims: int,
                 causal: bool) -> None:
        super().__init__()
        kernel = (3, 3) if dims == 2 else (1, 3)
        # A causal convolution is padded on one side only, which forward does.
        padding = (0, 0) if causal else (kernel[0] // 2, 1)
        self.causal = causal
        self.conv1 = nn.Conv2d(embed_dims, hidden_dims, kernel, padding=padding)
        self.conv2 = nn.Conv2d(hidden_dims, out_dims, kernel, padding=padding)

    def forward(self, x: Tensor, hw_shape: tuple[int, int], padding_mask: Tensor | None) -> Tensor:
        """Predict (B, H*W, out_dims) from tokens (B, H*W, C), zero where padded, and their padding
        (B, H*W) or None."""
        hidden = F.gelu(self.conv1(self._zero_padded(tokens_to_map(x.contiguous(), hw_shape))))
        if padding_mask is not None:
            hidden = hidden.masked_fill(padding_mask.view(x.shape[0], 1, *hw_shape), 0)
        return map_to_tokens(self.conv2(self._zero_padded(hidden)))

    def _zero_padded(self, x: Tensor) -> Tensor:
        return F.pad(x, (2, 0)) if self.causal else x


class MLPPredictor(nn.Module):
    """Two linear layers with GELU between, applied to each token separately."""

    def __init__(self, embed_dims: int, hidden_dims: int, out_dims: int, dims: int,
                 causal: bool) -> None:
        super().__init__()
        self.fc1 = nn.Linear(embed_dims, hidden_dims)
        self.fc2 = nn.Linear(hidden_dims, out_dims)

    def forward(self, x: Tensor, hw_shape: tuple[int, int], padding_mask: Tensor | None) -> Tensor:
        """Weights and sizes of all tokens, see :meth:`ConvPredictor.forward`."""
        return self.fc2(F.gelu(self.fc1(x)))


class AttentionPredictor(nn.Module):
    """Attention of one head over all tokens, GELU, and a linear layer."""

    def __init__(self, embed_dims: int, hidden_dims: int, out_dims: int, dims: int,
                 causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.qkv = nn.Linear(embed_dims, 3 * hidden_dims)
        self.proj = nn.Linear(hidden_dims, out_dims)

    def forward(self, x: Tensor, hw_shape: tuple[int, int], padding_mask: Tensor | None) -> Tensor:
        """Weights and sizes of all tokens, see :meth:`ConvPredictor.forward`."""
        q, k, v = self.qkv(x)[:, None].chunk(3, -1)
        mask = None if padding_mask is None else ~padding_mask[:, None, None]
        if self.causal:
            # Padding comes after the sequence, so that no valid token attends to it.
            mask = None
        hidden = F.scaled_dot_product_attention(q, k, v, mask, is_causal=self.causal)[:, 0]
        return self.proj(F.gelu(hidden))


#: Networks that predict weights and sizes from the tokens.
PREDICTORS: dict[str, type[nn.Module]] = {
    'conv': ConvPredictor, 'mlp': MLPPredictor, 'attention': AttentionPredictor}


class ContextPool(TokenEncoding):
    """y_i = sum_j w_j g_ij x_j / sum_j w_j g_ij with g_ij a Gaussian of the distance between i and
    j. Each token predicts its weight w and the deviation sigma of its Gaussian (Huang et al., ICML
    2022, Sec. 3).

    sigma_i = ratio * s_i * (H + W) / 2 cells on a map, ratio * L * s_i along a sequence of L. By
    default a backbone has one module after each block that is followed by attention (Sec. 3.2).

    Args:
        embed_dims: C.
        hidden_dims: hidden channels of the predictor; None is C / 4. The costs in the paper fit 26
            channels for weights and sizes (docs/context_pool.md).
        ratio: r; in the paper 0.1 for transformers, 0.05 for ConvNets.
        dims: 2 pools on the map, 1 along the sequence of tokens, row by row.
        causal: use only a token and those before it; requires ``dims=1``.
        weights: 'learned' is w = exp(logit), a softmax over the neighbourhood. 'unnormalized' is
            w = 2 sigmoid(logit), and the sum is divided by the sum of g. 'uniform' is w = 1.
            'nonlocal' is w_ij = exp(q_i . k_j / sqrt(D)) (Eq. 3, which has no root).
        nonlocal_dims: D, channels of q and k of 'nonlocal' weights; None is C, as in Eq. 3.
        locality: 'gaussian'. 'none' uses all tokens equally. 'fixed_window' uses a square of
            ``window_size``. 'adaptive_window' uses a square of half-width sqrt(3) sigma, which has
            the variance of the Gaussian, with an edge of one cell. 'random_sparse' uses the token
            and ``num_random`` random ones.
        predictor: 'conv' (two 3 x 3), 'mlp' (each token separately) or 'attention'.
        size_norm: 'sigmoid', or 'softmax' over the tokens, which leaves sigma near 0.
        window_size: side of the fixed windows in cells, odd.
        num_random: number of tokens drawn for each token.
        implementation: as for :func:`mmposenc.functional.context_pool`.
        stride: compute every ``stride``-th row and column only, which shrinks the grid; replaces
            the pooling and strides of a ConvNet.
        default_positions: where a backbone places it when its own ``positions`` is None; (0,) is
            only after the first block.

    Raises:
        ValueError: for unknown or contradicting options.

    There is no release; docs/context_pool.md lists our choices. Half-precision tokens are pooled in
    float32.
    """

    variants = {'contextpool': ('ContextPool after the first block', dict(default_positions=(0,)))}

    def __init__(self, embed_dims: int, *, hidden_dims: int | None = None, ratio: float = 0.1,
                 dims: int = 2, causal: bool = False, weights: str = 'learned',
                 nonlocal_dims: int | None = None, locality: str = 'gaussian',
                 predictor: str = 'conv', size_norm: str = 'sigmoid',
                 window_size: int = 7, num_random: int = 32, implementation: str = 'auto',
                 stride: int = 1,
                 default_positions: Sequence[int] | str = 'every') -> None:
        super().__init__()
        check_choices(weights=(weights, WEIGHTS), locality=(locality, LOCALITIES),
                      predictor=(predictor, tuple(PREDICTORS)), size_norm=(size_norm, SIZE_NORMS),
                      dims=(dims, (1, 2)), implementation=(implementation, IMPLEMENTATIONS))
        check_at_least(1, embed_dims=embed_dims, hidden_dims=hidden_dims, stride=stride,
                       nonlocal_dims=nonlocal_dims, num_random=num_random)
        check_positive(ratio=ratio)
        if window_size < 1 or window_size % 2 == 0:
            raise ValueError(f'window_size={window_size} must be odd and positive')
        _check_option_pairs(stride, dims, causal, weights, locality, size_norm)
        if isinstance(default_positions, str) and default_positions != 'every':
            raise ValueError(f"default_positions={default_positions!r} must be 'every', or numbers "
                             f"of blocks")
        self.embed_dims, self.ratio, self.dims, self.causal = embed_dims, ratio, dims, causal
        self.weights, self.locality, self.size_norm = weights, locality, size_norm
        self.window_size, self.num_random = window_size, num_random
        self.implementation, self.stride = implementation, stride
        self.keeps_grid = stride == 1
        self.default_positions = (default_positions if isinstance(default_positions, str)
                                  else tuple(default_positions))
        hidden = max(1, embed_dims // 4) if hidden_dims is None else hidden_dims
        self.has_weights = weights in ('learned', 'unnormalized')
        self.has_sizes = locality in ('gaussian', 'adaptive_window')
        outputs = self.has_weights + self.has_sizes
        network = PREDICTORS[predictor]
        self.predictor = network(embed_dims, hidden, outputs, dims, causal) if outputs else None
        pair_dims = embed_dims if nonlocal_dims is None else nonlocal_dims
        self.query_key = nn.Linear(embed_dims, 2 * pair_dims) if weights == 'nonlocal' else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights from a truncated normal distribution with standard deviation 0.02 and set
        biases to zero, so that token weights start near 1 and sizes near ratio / 2."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                assert module.bias is not None
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor, hw_shape: tuple[int, int], *, num_prefix_tokens: int = 0,
                padding_mask: Tensor | None = None) -> Tensor:
        """Pool the tokens of the grid.

        Args, Returns, Raises: as TokenEncoding. Padding has no weight and is returned unchanged.
        """
        hw = check_tokens(x, hw_shape, num_prefix_tokens).hw
        prefix, tokens = split_prefix(x, num_prefix_tokens)
        if padding_mask is None:
            return join_prefix(prefix, self._pooled_context(tokens, hw, None))
        cells = cells_at_stride(hw, self.stride, x.device)
        padding = padding_mask.flatten(1)
        cleared = tokens.masked_fill(padding[..., None], 0)
        if self.dims == 1:
            # Move padding to the end, so that the sequence of an image is as without padding.
            order = padding.long().argsort(dim=1, stable=True)[..., None].expand_as(tokens)
            moved = self._pooled_context(cleared.gather(1, order), hw,
                                         padding.gather(1, order[..., 0]))
            pooled = torch.zeros_like(tokens).scatter(1, order, moved)
        else:
            pooled = self._pooled_context(cleared, hw, padding)
        return join_prefix(prefix, torch.where(padding[:, cells, None], tokens[:, cells], pooled))

    def out_hw_shape(self, hw_shape: tuple[int, int]) -> tuple[int, int]:
        """The grid of the output: the rows and columns that the stride keeps."""
        return whole_cells(hw_shape[0], self.stride), whole_cells(hw_shape[1], self.stride)

    def out_padding_mask(self, padding_mask: Tensor | None) -> Tensor | None:
        """The padding mask of the cells that the stride keeps."""
        return None if padding_mask is None else padding_mask[:, ::self.stride, ::self.stride]

    def predict(self, x: Tensor, hw_shape: tuple[int, int], padding: Tensor | None = None
                ) -> PoolingPrediction:
        """Weights and sizes of the tokens of a grid, for figures too.

        Args:
            x: (B, H*W, C), zero where padded.
            hw_shape: (H, W).
            padding: (B, H*W) bool, or None; with ``dims=1`` it comes after the sequence.
        """
        logits = x.new_zeros(x.shape[:2], dtype=torch.promote_types(x.dtype, torch.float32))
        sigma = None
        if self.predictor is not None:
            grid = hw_shape if self.dims == 2 else (1, x.shape[1])
            predicted = list(self.predictor(x, grid, padding).to(logits.dtype).unbind(-1))
            if self.has_weights:
                logits = predicted.pop(0)
            if self.has_sizes:
                sigma = self._sigma_of_raw(predicted[0], grid, padding)
        if padding is not None:
            logits = logits.masked_fill(padding, -math.inf)
        return PoolingPrediction(logits, sigma)

    def _sigma_of_raw(self, raw: Tensor, grid: tuple[int, int], padding: Tensor | None) -> Tensor:
        if self.size_norm == 'sigmoid':
            sizes = raw.sigmoid()
        else:
            sizes = (raw if padding is None else raw.masked_fill(padding, -math.inf)).softmax(1)
        extents = _extents_of_images(raw, grid, padding)
        if self.dims == 1:
            return self.ratio * sizes * extents[:, 1:]
        return self.ratio * sizes * extents.sum(1, keepdim=True) / 2

    def _pooled_context(self, x: Tensor, hw_shape: tuple[int, int],
                        padding: Tensor | None) -> Tensor:
        logits, sigma = self.predict(x, hw_shape, padding)
        grid = hw_shape if self.dims == 2 else (1, x.shape[1])
        tokens = x.to(logits.dtype)
        with full_precision(x):
            out = self._pooled_by_locality(tokens, logits, sigma, grid, padding)
        # Only the implementation with pairs of queries has applied the stride already.
        if out.shape[1] == x.shape[1]:
            out = out[:, cells_at_stride(grid, self.stride, x.device)] if self.stride > 1 else out
        return out.to(x.dtype)

    def _pooled_by_locality(self, x: Tensor, logits: Tensor, sigma: Tensor | None,
                            grid: tuple[int, int], padding: Tensor | None) -> Tensor:
        if self.weights == 'unnormalized':
            x = x * (2 * logits.sigmoid())[..., None]  # The factor is 0 at padding.
            logits = torch.zeros_like(logits)
            if padding is not None:
                logits = logits.masked_fill(padding, -math.inf)
        kernel, sizes = self._kernel_and_sizes(sigma, logits)
        if self.query_key is not None:
            both = self.query_key(x.to(layer_dtype(self.query_key))).to(x.dtype)
            queries, keys = both.chunk(2, -1)
            return nonlocal_pool(x, queries * queries.shape[-1] ** -0.5, keys, padding, sizes,
                                 grid, kernel, self.causal)
        if sigma is not None or self.causal:
            return context_pool(x, logits, sizes, grid, implementation=self.implementation,
                                kernel=kernel, causal=self.causal, stride=self.stride)
        weights = (logits - logits.detach().amax(1, keepdim=True)).exp()
        if self.locality == 'none':
            return global_mean(x, weights)
        if self.locality == 'fixed_window':
            return window_mean(x, weights, grid, self.window_size)
        return random_mean(x, weights, grid, _extents_of_images(logits, grid, padding),
                           self.num_random)

    def _kernel_and_sizes(self, sigma: Tensor | None, like: Tensor) -> tuple[str, Tensor]:
        """The kernel and the sizes with which the general function computes the chosen locality."""
        if self.locality == 'fixed_window':
            return 'window', torch.full_like(like, self.window_size // 2)
        if sigma is None:
            return 'gaussian', torch.full_like(like, math.inf)
        return (('gaussian', sigma) if self.locality == 'gaussian'
                else ('window', math.sqrt(3) * sigma))

    def extra_repr(self) -> str:
        return (f'{self.embed_dims}, ratio={self.ratio}, weights={self.weights!r}, '
                f'locality={self.locality!r}, implementation={self.implementation!r}')


def _extents_of_images(like: Tensor, grid: tuple[int, int], padding: Tensor | None) -> Tensor:
    """The rows and columns that each image fills, (B, 2); a sequence is one row."""
    if padding is None:
        return torch.stack([torch.full_like(like[:, 0], side) for side in grid], 1)
    return filled_extents(padding.view(like.shape[0], *grid)).to(like.dtype)


def _check_option_pairs(stride: int, dims: int, causal: bool, weights: str, locality: str,
                        size_norm: str
                        ) -> None:
    """Raise ValueError for options that contradict each other."""
    if stride > 1 and dims == 1:
        raise ValueError(f'stride={stride} needs dims=2: a sequence of tokens keeps its length')
    if causal and dims != 1:
        raise ValueError(f'causal=True needs dims=1, not dims={dims}: a map has no order')
    if causal and size_norm == 'softmax':
        raise ValueError("causal=True with size_norm='softmax': a softmax over all tokens sees "
                         "what comes later; use size_norm='sigmoid'")
    if locality == 'random_sparse' and (causal or weights == 'nonlocal'):
        raise ValueError("locality='random_sparse' takes neither causal=True nor "
                         "weights='nonlocal'")
