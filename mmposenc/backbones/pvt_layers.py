"""Blocks and stages of the Pyramid Vision Transformer."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..attention.spatial_reduction import SpatialReductionAttention
from ..attention.window import PlainWindowAttention
from ..encodings.build import EncodingConfig
from ..encodings.placement import PlacedEncodings
from ..functional.extents import MaskLike, cells_of, token_mask
from ..functional.windows import WindowLayout
from .layers import MLP, DropPath, PatchEmbed, block_windows, run_block


class PVTBlock(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)).

    Args:
        embed_dims, num_heads, mlp_ratio: sizes.
        drop, drop_path: dropout rates of the outputs and of residual branches.
        norm_eps: epsilon of the two norms.
        mlp_encodings: configs of encodings inside the MLP.
        window_size: side of windows to attend in (Twins-SVT, Chu et al., NeurIPS 2021, Sec. 3.2),
            see :class:`~mmposenc.attention.PlainWindowAttention`; None: attend to the whole map
            with spatial reduction.
        mask_window_padding: see :class:`~mmposenc.attention.PlainWindowAttention`.
        reduction: arguments only of :class:`SpatialReductionAttention`.
        attention: arguments of both kinds of attention.
    """

    # torch.compile treats this class as one unit, see engine/training/compiling.py.
    is_region = True

    def __init__(self, embed_dims: int, num_heads: int, mlp_ratio: float, *, drop: float = 0.0,
                 drop_path: float = 0.0, norm_eps: float = 1e-6,
                 mlp_encodings: Sequence[EncodingConfig] = (), window_size: int | None = None,
                 mask_window_padding: bool | str = True, reduction: dict[str, Any] | None = None,
                 **attention: Any) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(embed_dims, eps=norm_eps)
        self.attn: Any
        if window_size is None:
            self.attn = SpatialReductionAttention(embed_dims, num_heads, proj_drop=drop,
                                                  **attention, **(reduction or {}))
        else:
            self.attn = PlainWindowAttention(embed_dims, num_heads, window_size, proj_drop=drop,
                                             mask_window_padding=mask_window_padding, **attention)
        self.norm2 = nn.LayerNorm(embed_dims, eps=norm_eps)
        self.mlp = MLP(embed_dims, int(embed_dims * mlp_ratio), drop, pos_encodings=mlp_encodings,
                       grid_shape=attention.get('grid_shape'),
                       num_prefix_tokens=attention.get('num_prefix_tokens', 0))
        self.drop_path, self.mlp_drop_path = DropPath(drop_path), DropPath(drop_path)

    def forward(self, x: Tensor, hw_shape: tuple[int, int],
                padding_mask: MaskLike | None = None, x_qk: Tensor | None = None,
                layout: WindowLayout | None = None) -> Tensor:
        """(B, L, C) -> (B, L, C); ``x_qk`` replaces ``x`` for queries and keys; ``layout`` is the
        result of :func:`.layers.block_windows`."""
        normed_qk = None if x_qk is None else self.norm1(x_qk)
        if layout is None:
            out = self.attn(self.norm1(x), hw_shape, padding_mask, x_qk=normed_qk)
        else:
            key_mask = None if padding_mask is None else token_mask(
                padding_mask, self.mlp.num_prefix_tokens)
            out = self.attn(self.norm1(x), hw_shape, key_mask, x_qk=normed_qk, layout=layout)
        x = x + self.drop_path(out)
        return x + self.mlp_drop_path(self.mlp(self.norm2(x), hw_shape, cells_of(padding_mask)))


class PVTStage(nn.Module):
    """Patch embedding, blocks, the encodings between them, and a norm of the output.

    Args:
        patch_embed: the patch embedding.
        blocks: the blocks.
        pos_encodings: the encodings by position.
        cls_dims: channels of a class token before the other tokens, or None.
        norm: norm of the output tokens, or None.
        with_cp: recompute the blocks in the backward pass to save memory.
    """

    def __init__(self, patch_embed: PatchEmbed, blocks: Sequence[PVTBlock],
                 pos_encodings: PlacedEncodings, *, cls_dims: int | None = None,
                 norm: nn.Module | None = None, with_cp: bool = False) -> None:
        super().__init__()
        self.patch_embed = patch_embed
        self.pos_encodings = pos_encodings
        self.blocks = nn.ModuleList(blocks)
        self.cls_token = None if cls_dims is None else nn.Parameter(torch.zeros(1, 1, cls_dims))
        self.norm = norm
        self.with_cp = with_cp

    def out_hw_shape(self, hw_shape: Sequence[int]) -> tuple[int, int]:
        """Grid of the output for a map (H, W)."""
        return self.pos_encodings.out_hw_shape(self.patch_embed.out_hw_shape(hw_shape))

    def forward(self, x: Tensor, padding_mask: MaskLike | None
                ) -> tuple[Tensor, tuple[int, int], MaskLike | None]:
        """Run the stage on a map (B, C, H, W), zero on padding, with the padding mask of its
        tokens; returns tokens, class token first, with their grid and mask."""
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
                                   block_windows(block, hw_shape),
                                   recompute=self.with_cp and self.training)
            tokens, hw_shape, padding_mask = self.pos_encodings(
                tokens, hw_shape, position, num_prefix_tokens=prefix, padding_mask=padding_mask)
        return tokens if self.norm is None else self.norm(tokens), hw_shape, padding_mask
