"""Pyramid Vision Transformer with any position encoding."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from ..encodings.sharing import shared_encodings
from ..functional.image_sizes import ImgShapes, get_img_shapes, mask_images
from ..functional.masking import every_cell, masked_mean, pad_map, tokens_to_map
from .base import Backbone, one_name
from .freezing import freeze
from .layers import PatchEmbed, init_transformer_weights
from .pvt_layers import PVTBlock, PVTStage

#: Blocks a stage.
ARCHS = {'tiny': (2, 2, 2, 2), 'small': (3, 4, 6, 3), 'medium': (3, 4, 18, 3),
         'large': (3, 8, 27, 3)}


class PVT(Backbone):
    """Pyramid Vision Transformer (Wang et al., ICCV 2021) with any position encoding.

    Args:
        arch: 'tiny', 'small', 'medium' or 'large'; explicit sizes override it.
        embed_dims, num_layers, num_heads, sr_ratios, mlp_ratios: sizes of each stage.
        depths: another name of ``num_layers``.
        patch_sizes: side of a patch of each stage, in cells of the stage before.
        qkv_bias: bias of queries, keys and values.
        norm_eps, embed_norm_eps: epsilon of the blocks' norms, and of those behind patch embeddings
            and spatial reductions (mmdet has 1e-6 for both).
        out_indices: stages to return as maps; ignored with ``pool``.
        pool: None returns maps; 'gap' the mean of the last stage's normed tokens, 'cls' its normed
            class token.
        shared: arguments of all backbones, see :class:`~mmposenc.backbones.base.Backbone`. With
            ``mask_padding`` sizes are rounded up to whole cells.

    Raises:
        ValueError: for sizes, positions, encodings, stages or options that do not fit.
    """

    def __init__(self, arch: str | None = None, *,
                 embed_dims: Sequence[int] = (64, 128, 320, 512),
                 num_layers: Sequence[int] | None = None, depths: Sequence[int] | None = None,
                 num_heads: Sequence[int] = (1, 2, 5, 8), sr_ratios: Sequence[int] = (8, 4, 2, 1),
                 mlp_ratios: Sequence[float] = (8, 8, 4, 4),
                 patch_sizes: Sequence[int] = (4, 2, 2, 2), qkv_bias: bool = True,
                 norm_eps: float = 1e-6, embed_norm_eps: float = 1e-5,
                 out_indices: Sequence[int] = (0, 1, 2, 3), pool: str | None = None,
                 **shared: Any) -> None:
        super().__init__(**shared)
        num_layers = _num_layers(arch, one_name(num_layers=num_layers, depths=depths))
        _check_sizes(embed_dims=embed_dims, num_layers=num_layers, num_heads=num_heads,
                     sr_ratios=sr_ratios, mlp_ratios=mlp_ratios, patch_sizes=patch_sizes)
        if pool not in (None, 'gap', 'cls'):
            raise ValueError(f"pool={pool!r} must be None, 'gap' or 'cls'")
        num_stages, given = len(num_layers), self._given
        self._check_parts('stages', num_stages, out_indices)
        self.out_indices, self.pool = tuple(out_indices), pool
        self.patch_sizes = tuple(patch_sizes)

        drop_paths, grid = iter(self._drop_paths(sum(num_layers))), given.side
        self.stages = nn.ModuleList()
        for i in range(num_stages):
            patch_embed = PatchEmbed(embed_dims[i - 1] if i else given.in_channels, embed_dims[i],
                                     patch_sizes[i], norm_eps=embed_norm_eps,
                                     ceil_mode=self.mask_padding)
            grid = patch_embed.out_hw_shape(grid)
            has_cls = pool == 'cls' and i == num_stages - 1
            blocks = [PVTBlock(
                embed_dims[i], num_heads[i], mlp_ratios[i], drop=given.drop,
                drop_path=next(drop_paths), norm_eps=norm_eps, sr_ratio=sr_ratios[i],
                qkv_bias=qkv_bias, num_prefix_tokens=int(has_cls), grid_shape=grid,
                ceil_mode=self.mask_padding, sr_norm_eps=embed_norm_eps, **given.attention)
                for _ in range(num_layers[i])]
            pos_encodings = self._placed(
                num_layers[i], embed_dims=embed_dims[i], grid_shape=grid,
                num_prefix_embeds=int(has_cls), drop=given.drop, followed=i + 1 < num_stages)
            self.stages.append(PVTStage(patch_embed, blocks, pos_encodings, with_cp=self.with_cp,
                                        cls_dims=embed_dims[i] if has_cls else None))
        self._share(list(self.stages))
        self.norm = None if pool is None else nn.LayerNorm(embed_dims[-1], eps=norm_eps)
        self._finish(self.stages)

    def reset_parameters(self) -> None:
        """Initialise as the release."""
        init_transformer_weights(self)
        for stage in self.stages:
            if stage.cls_token is not None:
                nn.init.trunc_normal_(stage.cls_token, std=0.02)

    def forward(self, x: Tensor, img_shapes: ImgShapes | None = None
                ) -> tuple[Tensor, ...]:
        """Extract features.

        Args:
            x: images (B, in_channels, H, W), padded to the right and below.
            img_shapes: height and width in pixels that each image fills, for ``mask_padding``;
                taken from the batch where a data preprocessor of this project made it. A tensor
                (B, 2) where they shall be an input of an exported program.

        Returns:
            Maps (B, embed_dims[i], H_i, W_i) of the stages in ``out_indices``; with ``pool`` one
            (B, embed_dims[-1]).

        Raises:
            ValueError: for an image smaller than a patch, or sizes that do not fit the batch.
        """
        if min(x.shape[-2:]) < self.patch_sizes[0]:
            raise ValueError(f'an image of {x.shape[-2]}x{x.shape[-1]} is smaller than the patch '
                             f'of {self.patch_sizes[0]}x{self.patch_sizes[0]}')
        full_hw = tuple(x.shape[-2:])
        shapes = get_img_shapes(x, img_shapes, self.mask_padding)
        x, mask = mask_images(x, shapes, self.patch_sizes[0])
        outs = []
        for index, stage in enumerate(self.stages):
            with self._precision(index, x):
                tokens, hw_shape, mask = stage(x, mask)
            tokens = self._full(tokens, index)
            full_hw = stage.out_hw_shape(full_hw)
            if self.pool is not None and index == len(self.stages) - 1:
                return (self._pool(tokens, mask),)
            x = tokens_to_map(tokens, hw_shape)
            if mask is not None:
                x = x.masked_fill(mask[:, None], 0)
                # Padding lies to the right and below: a cell is padding when its first part is.
            if index in self.out_indices:
                outs.append(pad_map(x, full_hw))
            if mask is not None and index + 1 < len(self.stages):
                mask = every_cell(mask, self.patch_sizes[index + 1])
        return tuple(outs)

    @property
    def strides(self) -> tuple[int, ...]:
        """Pixels of a side of a cell in each of the maps."""
        return tuple(math.prod(self.patch_sizes[:i + 1]) for i in sorted(self.out_indices))

    def _pool(self, tokens: Tensor, mask: Tensor | None) -> Tensor:
        assert self.norm is not None
        if self.pool == 'cls':
            return self.norm(tokens[:, 0])  # type: ignore[no-any-return]
        return masked_mean(self.norm(tokens), mask)

    def _freeze(self) -> None:
        frozen: list[nn.Module] = [*self.stages[:max(self.frozen_stages, 0)]]
        if self.frozen_stages == len(self.stages):
            frozen += shared_encodings(self)
        freeze(self, frozen, trainable=self.trainable)


def _num_layers(arch: str | None, num_layers: Sequence[int] | None) -> tuple[int, ...]:
    if num_layers is not None:
        return tuple(num_layers)
    if arch not in ARCHS:
        raise ValueError(f'arch={arch!r} must be one of {", ".join(map(repr, ARCHS))}, or give '
                         f'num_layers')
    return ARCHS[arch]


def _check_sizes(**sizes: Sequence[float]) -> None:
    lengths = {name: len(values) for name, values in sizes.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError('each stage needs one value of every size, but the lengths are '
                         + ', '.join(f'{name}: {length}' for name, length in lengths.items()))
    for name, values in sizes.items():
        if not all(value > 0 for value in values):
            raise ValueError(f'{name}={tuple(values)} must be positive')
