"""Blocks and stages of the Swin Transformer."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..attention.window import ShiftWindowAttention
from ..encodings.base import RelativeConfig
from ..encodings.build import EncodingConfig, listed, resolve
from ..encodings.log_cpb import LogSpacedCPB
from ..encodings.placement import PlacedEncodings
from ..encodings.relative_bias import RelativePositionBias
from ..functional.extents import MaskLike, cells_of, mask_at_step, read_extents
from ..functional.linear import project
from ..functional.windows import Counts, window_counts
from .layers import MLP, DropPath, run_block


class SwinBlock(nn.Module):
    """x + attention(norm(x)) in windows, then x + mlp(norm(x)); with ``post_norm`` x +
    norm(attention(x)), then x + norm(mlp(x)) (Swin Transformer V2, CVPR 2022, Sec. 3.2).

    Args:
        embed_dims, num_heads, mlp_ratio: sizes.
        drop, drop_path: dropout rates of the outputs and of residual branches.
        norm_eps: epsilon of the two norms.
        post_norm: apply the norms to the outputs of the branches, not to their inputs.
        mlp_encodings, grid_shape: configs of encodings inside the MLP, and the grid of the stage.
        attention: further arguments of :class:`~mmposenc.attention.ShiftWindowAttention`.
    """

    # torch.compile treats this class as one unit, see engine/training/compiling.py.
    is_region = True
    #: Whether with ``post_norm`` a branch is dropped before its norm, as in mmpretrain.
    drops_before_norm = False

    def __init__(self, embed_dims: int, num_heads: int, mlp_ratio: float, *, drop: float = 0.0,
                 drop_path: float = 0.0, norm_eps: float = 1e-5, post_norm: bool = False,
                 mlp_encodings: Sequence[EncodingConfig] = (),
                 grid_shape: tuple[int, int] | None = None, **attention: Any) -> None:
        super().__init__()
        self.post_norm = post_norm
        self.norm1 = nn.LayerNorm(embed_dims, eps=norm_eps)
        self.attn = ShiftWindowAttention(embed_dims, num_heads, proj_drop=drop, **attention)
        self.norm2 = nn.LayerNorm(embed_dims, eps=norm_eps)
        self.mlp = MLP(embed_dims, int(embed_dims * mlp_ratio), drop, pos_encodings=mlp_encodings,
                       grid_shape=grid_shape)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, hw_shape: tuple[int, int],
                padding_mask: MaskLike | None = None, counts: Counts | None = None) -> Tensor:
        """(B, H*W, C) -> (B, H*W, C)."""
        cells = cells_of(padding_mask)
        if self.post_norm:
            x = x + self._normed(self.norm1, self._attend(x, hw_shape, padding_mask, counts))
            return x + self._normed(self.norm2, self.mlp(x, hw_shape, cells))
        x = x + self.drop_path(self._attend(self.norm1(x), hw_shape, padding_mask, counts))
        return x + self.drop_path(self.mlp(self.norm2(x), hw_shape, cells))

    def _normed(self, norm: nn.Module, branch: Tensor) -> Tensor:
        out: Tensor = (norm(self.drop_path(branch)) if self.drops_before_norm
                       else self.drop_path(norm(branch)))
        return out

    def _attend(self, x: Tensor, hw_shape: tuple[int, int], padding_mask: MaskLike | None,
                counts: Counts | None) -> Tensor:
        out: Tensor = self.attn(x, hw_shape, cells_of(padding_mask), counts)
        if padding_mask is None or not any(self.attn.shift_size) or self.attn.pad_small_map:
            return out
        # An image that fits into one window is not shifted when it is alone, so it must not be
        # shifted in a batch either.
        window = self.attn.window_size
        if hw_shape[0] <= window[0] or hw_shape[1] <= window[1]:
            return out
        images = list(out.split(1))
        extents = read_extents(padding_mask)
        for index, (height, width) in enumerate(extents):
            if height <= window[0] or width <= window[1]:
                cells = x[index].view(*hw_shape, -1)[:height, :width]
                alone = self.attn(cells.reshape(1, height * width, -1), (height, width))
                alone = alone.view(1, height, width, -1)
                images[index] = F.pad(alone, (0, 0, 0, hw_shape[1] - width,
                                              0, hw_shape[0] - height)).flatten(1, 2)
        return torch.cat(images)


#: Tokens (B, H*W, C), their grid (H, W), their padding mask (B, H, W) or None.
Tokens = tuple[Tensor, tuple[int, int], MaskLike | None]


class PatchMerging(nn.Module):
    """Join 2 x 2 cells into one of twice the channels (Swin Transformer, Sec. 3.1).

    The four cells are concatenated column by column, as in the release (mmdet's unfold has another
    order). An odd last row or column is padded with zeros.

    Args:
        embed_dims: channels C of the input.
        norm_eps: epsilon of the norm.
        post_norm: apply the norm to the 2 C output channels (Swin V2), not to the 4 C inputs.
    """

    def __init__(self, embed_dims: int, norm_eps: float = 1e-5, *, post_norm: bool = False
                 ) -> None:
        super().__init__()
        self.post_norm = post_norm
        self.norm = nn.LayerNorm((2 if post_norm else 4) * embed_dims, eps=norm_eps)
        self.reduction = nn.Linear(4 * embed_dims, 2 * embed_dims, bias=False)

    def forward(self, x: Tensor, hw_shape: tuple[int, int]) -> tuple[Tensor, tuple[int, int]]:
        """Merge 2 x 2 cells: from (B, H*W, C), zero on padding, to (B, H'*W', 2 C) and the grid
        (H', W'), whose halves are rounded up."""
        height, width = self.out_hw_shape(hw_shape)
        cells = x.view(x.shape[0], *hw_shape, x.shape[-1])
        cells = F.pad(cells, (0, 0, 0, 2 * width - hw_shape[1], 0, 2 * height - hw_shape[0]))
        cells = cells.view(x.shape[0], height, 2, width, 2, x.shape[-1]).permute(0, 1, 3, 4, 2, 5)
        joined = cells.reshape(x.shape[0], height * width, 4 * x.shape[-1])
        out = (self.norm(project(self.reduction, joined)) if self.post_norm
               else project(self.reduction, self.norm(joined)))
        return out, (height, width)

    def out_hw_shape(self, hw_shape: tuple[int, int]) -> tuple[int, int]:
        """Grid of the output."""
        return (hw_shape[0] + 1) // 2, (hw_shape[1] + 1) // 2


class SwinStage(nn.Module):
    """Blocks, the encodings between them, and patch merging before the next stage.

    Args:
        blocks: the blocks.
        pos_encodings: the encodings by position.
        downsample: patch merging, or None in the last stage.
        with_cp: recompute the blocks in the backward pass to save memory.
    """

    def __init__(self, blocks: Sequence[SwinBlock], pos_encodings: PlacedEncodings,
                 downsample: PatchMerging | None, with_cp: bool) -> None:
        super().__init__()
        self.pos_encodings = pos_encodings
        self.blocks = nn.ModuleList(blocks)
        self.downsample = downsample
        self.with_cp = with_cp

    def forward(self, x: Tensor, hw_shape: tuple[int, int], padding_mask: MaskLike | None
                ) -> Tokens:
        """Run the blocks on tokens (B, H*W, C). Returns tokens, grid and mask."""
        for index, block in enumerate((None, *self.blocks)):
            if block is not None:
                counts = window_counts(hw_shape, block.attn.window_size)
                x = run_block(block, x, hw_shape, padding_mask, counts,
                              recompute=self.with_cp and self.training)
            x, hw_shape, padding_mask = self.pos_encodings(x, hw_shape, index - 1,
                                                           padding_mask=padding_mask)
        return x, hw_shape, padding_mask

    def merge(self, x: Tensor, hw_shape: tuple[int, int], mask: MaskLike | None) -> Tokens:
        """The tokens, grid and mask for the next stage."""
        assert self.downsample is not None
        if mask is not None:
            x = x.masked_fill(cells_of(mask).flatten(1)[..., None], 0)
            # Padding is at the right and bottom, so a cell is padding if its first part is.
            mask = mask_at_step(mask, 2)
        return *self.downsample(x, hw_shape), mask


def window_encoding_config(rel_pos_encoding: RelativeConfig | None, pretrained: tuple[int, int]
                           ) -> RelativeConfig | None:
    """The config of an encoding for attention in windows, completed by the sizes that it asks for.

    All windows have one size, also at the border of a map, so a table need not be resized.
    LogSpacedCPB measures offsets in the windows of the pretrained weights, ``pretrained``, if there
    are any.
    """
    parts = []
    for part in listed(rel_pos_encoding):
        known = isinstance(part, dict) and 'type' in part
        kind = resolve(part['type'], 'rel_pos_encoding') if known else None
        if kind is RelativePositionBias:
            part = {key: value for key, value in part.items() if key != 'resize'}
        elif kind is LogSpacedCPB and any(pretrained):
            part = {'window_size': pretrained, **part}
        parts.append(part)
    return parts if isinstance(rel_pos_encoding, (list, tuple)) else next(iter(parts), None)
