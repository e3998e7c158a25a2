"""Spatial-reduction attention of PVT, with padding masks and any relative encoding."""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor, nn

from ..functional.extents import (
    MaskLike,
    PaddingMask,
    cells_of,
    mask_at_step,
    parts_of_images,
    run_by_image,
    token_mask,
)
from ..functional.grids import Grid, GridLike, as_grid, whole_cells
from ..functional.linear import project
from ..functional.masking import adaptive_means, map_to_tokens, pad_map, tokens_to_map
from ..functional.tracing import uncompiled
from .attend import attend
from .building import build_relative_encoding, check_heads
from .compute import checked_implementation
from .multihead import join_heads, split_heads

if TYPE_CHECKING:
    from ..encodings.base import RelativeConfig


class SpatialReductionAttention(nn.Module):
    """Attention whose keys and values are pooled by a strided convolution (PVT, Wang et al., ICCV
    2021, Eq. 2-3).

    Args:
        embed_dims: channels C; a multiple of ``num_heads``.
        num_heads: attention heads.
        sr_ratio: R; R x R tokens are reduced to one key and value (1: no reduction).
        qkv_bias: bias of the projections to queries, keys and values.
        proj_bias: bias of the projection of the output.
        rel_pos_encoding: relative encoding or its config; keys have the positions of the centres of
            the R x R cells, in units of the query grid.
        num_prefix_tokens: number of tokens before those of the grid; only without reduction.
        grid_shape: (H, W) for encodings that need the largest grid.
        attn_drop, proj_drop: dropout rates of the attention weights and of the output.
        sr_norm_eps: epsilon of the norm after the reduction.
        key_cells: average keys and values to this number of rows and columns for any grid, followed
            by a 1x1 convolution, norm and GELU (PVT v2's linear attention, Wang et al., CVM 2022,
            Sec. 3.1: 7); ``sr_ratio`` is not used then.
        ceil_mode: keep the last, partial R x R cell of a grid that is not a multiple of R, padded
            with zeros. False: its tokens are no keys, as in PVT.
        implementation: how attention is computed, see :func:`mmposenc.attention.attend`.

    Raises:
        ValueError: sizes are not multiples or not positive.

    Differences from mmdet's: it uses scaled_dot_product_attention, so no (L, Lk) tensor is stored;
    tokens stay channels_last and are not copied to NCHW; padding is masked.
    """

    def __init__(self, embed_dims: int, num_heads: int, *, sr_ratio: int = 1,
                 qkv_bias: bool = True, proj_bias: bool = True,
                 rel_pos_encoding: RelativeConfig | None = None,
                 num_prefix_tokens: int = 0, grid_shape: GridLike | None = None,
                 attn_drop: float = 0.0, proj_drop: float = 0.0,
                 sr_norm_eps: float = 1e-5, key_cells: int | None = None, ceil_mode: bool = False,
                 implementation: str = 'auto') -> None:
        super().__init__()
        check_heads(embed_dims, num_heads)
        if sr_ratio < 1:
            raise ValueError(f'sr_ratio={sr_ratio} must be at least 1')
        if key_cells is not None and key_cells < 1:
            raise ValueError(f'key_cells={key_cells} must be at least 1, or None')
        if num_prefix_tokens and (key_cells or sr_ratio > 1):
            raise ValueError(f'num_prefix_tokens={num_prefix_tokens} with sr_ratio={sr_ratio} and '
                             f'key_cells={key_cells}: prefix tokens have no grid to reduce; use '
                             f'sr_ratio=1 and key_cells=None')
        self.embed_dims = embed_dims
        self.num_heads = num_heads
        self.sr_ratio = 1 if key_cells else sr_ratio
        self.key_cells = key_cells
        self.num_prefix_tokens = num_prefix_tokens
        self.attn_drop, self.implementation = attn_drop, checked_implementation(implementation)
        self.ceil_mode = ceil_mode
        self.q = nn.Linear(embed_dims, embed_dims, bias=qkv_bias)
        self.kv = nn.Linear(embed_dims, 2 * embed_dims, bias=qkv_bias)
        self.proj = nn.Linear(embed_dims, embed_dims, bias=proj_bias)
        self.proj_drop = nn.Dropout(proj_drop)
        if key_cells or sr_ratio > 1:
            self.sr = nn.Conv2d(embed_dims, embed_dims, self.sr_ratio, stride=self.sr_ratio)
            self.norm = nn.LayerNorm(embed_dims, eps=sr_norm_eps)
        self.rel_pos_encoding = build_relative_encoding(
            rel_pos_encoding, embed_dims // num_heads, num_heads, num_prefix_tokens,
            grid_shape=grid_shape)

    def forward(self, x: Tensor, hw_shape: GridLike, padding_mask: MaskLike | None = None,
                need_weights: bool = False, *, x_qk: Tensor | None = None
                ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend.

        Args:
            x: (B, P + H*W, C), P prefix tokens first.
            hw_shape: (H, W).
            padding_mask: (B, H, W) bool, True = padding, or a ``PaddingMask``; a reduced
                cell is valid if one of its tokens is.
            need_weights: also return the weights (B, heads, L, Lk), for figures.
            x_qk: tokens for queries and keys if they differ from ``x``.

        Returns:
            (B, P + H*W, C), with ``need_weights`` a pair (output, weights).

        Raises:
            ValueError: the grid is smaller than one R x R cell, unless ``ceil_mode``; or
                ``need_weights`` with a mask where ``key_cells`` have the positions of an encoding.
        """
        grid = as_grid(hw_shape)
        key_grid = self.reduced_key_grid(grid)
        if self.key_cells and padding_mask is not None and self.rel_pos_encoding is not None:
            if need_weights:
                raise ValueError(f'need_weights=True with padding_mask and key_cells='
                                 f'{self.key_cells}: the positions of keys depend on the size of '
                                 f'each image; give each image alone, without its padding')
            return self._attend_image_by_image(x, grid, padding_mask, x_qk)
        padding = cells_of(padding_mask)
        reduced = self._reduced_tokens(x, grid, key_grid, padding)
        if x_qk is None:
            k, v = split_heads(project(self.kv, reduced), self.num_heads, 2)
        else:
            other, dims = self._reduced_tokens(x_qk, grid, key_grid, padding), self.embed_dims
            k, = split_heads(project(self.kv, other, slice(dims)), self.num_heads)
            v, = split_heads(project(self.kv, reduced, slice(dims, None)), self.num_heads)
        # Computed after keys and values: in the other order inductor cannot sort symbolic strides.
        q, = split_heads(project(self.q, x if x_qk is None else x_qk), self.num_heads)
        key_mask, query_mask = self._key_and_query_masks(padding_mask, key_grid)
        out, weights = attend(
            q, k, v, self.rel_pos_encoding, grid, key_grid, key_padding_mask=key_mask,
            query_padding_mask=query_mask, tokens=x if x_qk is None else x_qk,
            need_weights=need_weights,
            implementation=self.implementation,
            dropout_p=self.attn_drop if self.training else 0.0)
        out = self.proj_drop(project(self.proj, join_heads(out)))
        return out if weights is None else (out, weights)

    def reduced_key_grid(self, hw_shape: GridLike) -> Grid:
        """The grid of the keys, in units of query cells."""
        grid, ratio, cells = as_grid(hw_shape), self.sr_ratio, self.key_cells
        if cells:
            return Grid(cells, cells, grid.height / cells, grid.width / cells)
        if ratio == 1:
            return grid
        if self.ceil_mode:
            height, width = whole_cells(grid.height, ratio), whole_cells(grid.width, ratio)
        else:
            height, width = grid.height // ratio, grid.width // ratio
        if height < 1 or width < 1:
            raise ValueError(f'hw_shape=({grid.height}, {grid.width}) is smaller than one cell of '
                             f'sr_ratio={ratio}; use a larger image, or ceil_mode=True')
        return Grid(height, width, float(ratio), float(ratio))

    def _reduced_tokens(self, x: Tensor, grid: Grid, key_grid: Grid,
                        padding_mask: Tensor | None) -> Tensor:
        """Reduce tokens to those of keys and values, (B, P + Hk*Wk, C)."""
        if self.key_cells:
            means = adaptive_means(tokens_to_map(x, grid.hw), self.key_cells, padding_mask)
            x = self.norm(map_to_tokens(self.sr(means)))
            return F.gelu(x)
        if self.sr_ratio == 1:
            return x
        feature_map = tokens_to_map(x, grid.hw)
        if padding_mask is not None:
            feature_map = feature_map.masked_fill(padding_mask[:, None], 0)
        if self.ceil_mode:
            feature_map = pad_map(feature_map, (key_grid.height * self.sr_ratio,
                                                key_grid.width * self.sr_ratio))
        return self.norm(map_to_tokens(self.sr(feature_map)))

    def _key_and_query_masks(self, padding_mask: MaskLike | None, key_grid: Grid
                             ) -> tuple[PaddingMask | None, PaddingMask | None]:
        """Padding masks of the keys, (B, P + Hk*Wk), and, for an encoding that depends on their
        grid, of the queries, (B, P + H*W)."""
        # Where there is no mask, and where a key is a cell, every key stands for valid tokens.
        if padding_mask is None or self.key_cells:
            return None, None
        encoding = self.rel_pos_encoding
        if encoding is None or encoding.cellwise:
            return self._key_mask(padding_mask, key_grid), None
        return self._uncompiled_masks(padding_mask, key_grid)

    # Compiled code would hold the extents of images, or wait for an accelerator to tell them; such
    # blocks are compiled in parts anyway.
    @uncompiled
    def _uncompiled_masks(self, padding_mask: MaskLike, key_grid: Grid
                          ) -> tuple[PaddingMask, PaddingMask]:
        return (self._key_mask(padding_mask, key_grid),
                token_mask(padding_mask, self.num_prefix_tokens))

    def _key_mask(self, padding_mask: MaskLike, key_grid: Grid) -> PaddingMask:
        if self.sr_ratio > 1:
            # Padding is at the right and bottom: a cell is padding if its first token is.
            padding_mask = mask_at_step(padding_mask, self.sr_ratio)
            if not self.ceil_mode:
                padding_mask = padding_mask.cells[:, :key_grid.height, :key_grid.width]
        return token_mask(padding_mask, self.num_prefix_tokens)

    @uncompiled
    def _attend_image_by_image(self, x: Tensor, grid: Grid, padding_mask: MaskLike,
                               x_qk: Tensor | None) -> Tensor:
        """Attend to each image separately, because the positions of ``key_cells`` depend on its
        size."""
        parts = parts_of_images((grid, grid), [token_mask(padding_mask)], 0)
        return run_by_image(self.forward, parts, x, x_qk)
