"""Blocks and stages of the Pyramid Vision Transformer."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..attention.spatial_reduction import SpatialReductionAttention
from ..encodings.placement import PlacedEncodings
from .layers import MLP, DropPath, PatchEmbed, run_block


class PVTBlock(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)).

    Args:
        embed_dims, num_heads, mlp_ratio: sizes.
        drop, drop_path: dropout rates of the outputs and of whole branches.
        norm_eps: epsilon of the two norms.
        attention: further arguments of :class:`SpatialReductionAttention`.
    """

    def __init__(self, embed_dims: int, num_heads: int, mlp_ratio: float, *, drop: float = 0.0,
                 drop_path: float = 0.0, norm_eps: float = 1e-6, **attention: Any) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(embed_dims, eps=norm_eps)
        self.attn = SpatialReductionAttention(embed_dims, num_heads, proj_drop=drop, **attention)
        self.norm2 = nn.LayerNorm(embed_dims, eps=norm_eps)
        self.mlp = MLP(embed_dims, int(embed_dims * mlp_ratio), drop)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, hw_shape: tuple[int, int], padding_mask: Tensor | None = None,
                x_qk: Tensor | None = None) -> Tensor:
        """(B, L, C) -> (B, L, C); ``x_qk`` replaces ``x`` for queries and keys."""
        normed_qk = None if x_qk is None else self.norm1(x_qk)
        x = x + self.drop_path(self.attn(self.norm1(x), hw_shape, padding_mask, x_qk=normed_qk))
        return x + self.drop_path(self.mlp(self.norm2(x)))


class PVTStage(nn.Module):
    """Patch embedding, blocks, and the encodings between them.

    Args:
        patch_embed: what makes the tokens.
        blocks: the blocks.
        pos_encodings: the encodings by position.
        cls_dims: channels of a class token put before the tokens, or None.
        with_cp: recompute the blocks in the backward pass instead of storing what is inside.
    """

    def __init__(self, patch_embed: PatchEmbed, blocks: Sequence[PVTBlock],
                 pos_encodings: PlacedEncodings, *, cls_dims: int | None = None,
                 with_cp: bool = False) -> None:
        super().__init__()
        self.patch_embed = patch_embed
        self.pos_encodings = pos_encodings
        self.blocks = nn.ModuleList(blocks)
        self.cls_token = None if cls_dims is None else nn.Parameter(torch.zeros(1, 1, cls_dims))
        self.with_cp = with_cp

    def out_hw_shape(self, hw_shape: Sequence[int]) -> tuple[int, int]:
        """Grid of the output of a map (H, W)."""
        return self.pos_encodings.out_hw_shape(self.patch_embed.out_hw_shape(hw_shape))

    def forward(self, x: Tensor, padding_mask: Tensor | None
                ) -> tuple[Tensor, tuple[int, int], Tensor | None]:
        """Map (B, C, H, W), zero where padded, and the padding mask of the tokens it makes; returns
        tokens, class token first, with their grid and mask."""
        tokens, hw_shape = self.patch_embed(x)
        prefix = 0
        if self.cls_token is not None:
            prefix = 1
            tokens = torch.cat((self.cls_token.expand(tokens.shape[0], -1, -1), tokens), dim=1)
        for index, block in enumerate((None, *self.blocks)):
            position = index - 1
            if block is not None:
                x_qk = self.pos_encodings.query_key_tokens(
                    tokens, hw_shape, position - 1, num_prefix_tokens=prefix,
                    padding_mask=padding_mask)
                tokens = run_block(block, tokens, hw_shape, padding_mask, x_qk,
                                   recompute=self.with_cp and self.training)
            tokens, hw_shape, padding_mask = self.pos_encodings(
                tokens, hw_shape, position, num_prefix_tokens=prefix, padding_mask=padding_mask)
        return tokens, hw_shape, padding_mask
