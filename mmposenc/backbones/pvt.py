"""Pyramid Vision Transformer with any position encoding."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from ..encodings.placement import EncodingConfigs, PlacedEncodings, Positions
from ..encodings.sharing import share_encodings, shared_encodings
from ..functional.image_sizes import ImgShapes, get_img_shapes, mask_images
from ..functional.masking import every_cell, masked_mean, pad_map, tokens_to_map
from .checkpoints import PretrainedMixin
from .freezing import Freezing, freeze
from .layer_depth import LayerDepths
from .layers import PatchEmbed, check_parts, check_rates, init_transformer_weights, rising_rates
from .modules import BaseModule
from .pvt_layers import PVTBlock, PVTStage

#: Blocks a stage.
ARCHS = {'tiny': (2, 2, 2, 2), 'small': (3, 4, 6, 3), 'medium': (3, 4, 18, 3),
         'large': (3, 8, 27, 3)}


class PVT(Freezing, LayerDepths, PretrainedMixin, BaseModule):
    """Pyramid Vision Transformer (Wang et al., ICCV 2021) with any position encoding.

    Args:
        arch: 'tiny', 'small', 'medium' or 'large'; explicit sizes override it.
        embed_dims, num_layers, num_heads, sr_ratios, mlp_ratios: sizes of each stage.
        patch_sizes: side of a patch of each stage, in cells of the stage before.
        in_channels: channels of the image.
        pos_encoding: a TokenEncoding config, several, or None; each stage gets its own.
            ``dict(type='mmposenc.LearnedPositionEmbedding', interpolation='bilinear')`` is the
            paper's, ``dict(type='mmposenc.PEG')`` that of CPVT and Twins.
        positions: where in each stage: -1 before the first block, i after block i; 'every': after
            all blocks but the very last; None for each encoding's usual place.
        rel_pos_encoding: a RelativeEncoding config for every attention, or None.
        rel_pos_sharing: 'layer' gives each attention an encoding of its own, 'stage' one to all
            blocks of a stage, 'all' one to all blocks, which must have the same heads and sizes.
        img_size: image side or (H, W) that learned tables are made for.
        qkv_bias: bias of queries, keys and values.
        drop_rate, attn_drop_rate, drop_path_rate: dropout of outputs, attention weights, and
            (rising over the blocks from 0) whole residual branches.
        form: how attention is computed, see :func:`mmposenc.attention.attend`.
        norm_eps, embed_norm_eps: epsilon of the blocks' norms, and of those behind patch embeddings
            and spatial reductions (mmdet has 1e-6 for both).
        out_indices: stages to return as maps; ignored with ``pool``.
        pool: None returns maps; 'gap' the mean of the last stage's normed tokens, 'cls' its normed
            class token.
        frozen_stages: the first so many stages are not trained; -1 trains all. An encoding they
            share with others is trained.
        trainable: parts of names of parameters that are trained though frozen, as
            'pos_encodings.at.after0' or 'rel_pos_encoding'.
        lora: ``dict(r=8)``: low-rank matrices beside those of frozen stages, which are trained; see
            :func:`~mmposenc.backbones.lora.add_lora`. Needs peft.
        frozen_dtype: 'bfloat16': frozen stages keep their matrices and compute in it, and give
            float32 to what is trained.
        with_cp: recompute blocks in the backward pass to save memory.
        mask_padding: keep batch padding out: the maps of an image in a padded batch equal those of
            the image alone on its valid cells and are zero elsewhere. Sizes are rounded up to whole
            cells. Needs to know the images' sizes: ``forward(x, img_shapes)``, or
            ``data_preprocessor=dict(type='mmposenc.DetDataPreprocessor')``. Off, as upstream.
        init_cfg: ``dict(type='Pretrained', checkpoint=...)`` takes this project's, mmdet's and the
            official PVT and Twins (PCPVT) files; a file that does not fit is an error unless
            ``strict=False``.

    Raises:
        ValueError: for sizes, positions, encodings, stages or options that do not fit.
    """

    def __init__(self, arch: str | None = None, *,
                 embed_dims: Sequence[int] = (64, 128, 320, 512),
                 num_layers: Sequence[int] | None = None,
                 num_heads: Sequence[int] = (1, 2, 5, 8),
                 sr_ratios: Sequence[int] = (8, 4, 2, 1),
                 mlp_ratios: Sequence[float] = (8, 8, 4, 4),
                 patch_sizes: Sequence[int] = (4, 2, 2, 2),
                 in_channels: int = 3,
                 pos_encoding: EncodingConfigs = None,
                 positions: Positions = None,
                 rel_pos_encoding: dict[str, Any] | None = None,
                 rel_pos_sharing: str = 'layer',
                 img_size: int | tuple[int, int] = 224,
                 qkv_bias: bool = True,
                 drop_rate: float = 0.0,
                 attn_drop_rate: float = 0.0,
                 form: str = 'auto',
                 drop_path_rate: float = 0.1,
                 norm_eps: float = 1e-6,
                 embed_norm_eps: float = 1e-5,
                 out_indices: Sequence[int] = (0, 1, 2, 3),
                 pool: str | None = None,
                 frozen_stages: int = -1,
                 trainable: Sequence[str] = (),
                 lora: dict[str, Any] | None = None,
                 frozen_dtype: str | None = None,
                 with_cp: bool = False,
                 mask_padding: bool = False,
                 init_cfg: dict[str, Any] | None = None) -> None:
        super().__init__(init_cfg=init_cfg)
        check_rates(drop_rate=drop_rate, attn_drop_rate=attn_drop_rate,
                    drop_path_rate=drop_path_rate)
        num_layers = _num_layers(arch, num_layers)
        _check_sizes(embed_dims=embed_dims, num_layers=num_layers, num_heads=num_heads,
                     sr_ratios=sr_ratios, mlp_ratios=mlp_ratios, patch_sizes=patch_sizes)
        num_stages = len(num_layers)
        if pool not in (None, 'gap', 'cls'):
            raise ValueError(f"pool={pool!r} must be None, 'gap' or 'cls'")
        check_parts('stages', num_stages, out_indices, frozen_stages)
        self.out_indices = tuple(out_indices)
        self.pool = pool
        self.frozen_stages = frozen_stages
        self.mask_padding = mask_padding
        self.patch_sizes = tuple(patch_sizes)

        drop_paths = rising_rates(drop_path_rate, sum(num_layers))
        grid = (img_size, img_size) if isinstance(img_size, int) else tuple(img_size)
        self.stages = nn.ModuleList()
        for i in range(num_stages):
            patch_embed = PatchEmbed(in_channels if i == 0 else embed_dims[i - 1], embed_dims[i],
                                     patch_sizes[i], norm_eps=embed_norm_eps,
                                     ceil_mode=mask_padding)
            grid = patch_embed.out_hw_shape(grid)
            has_cls = pool == 'cls' and i == num_stages - 1
            first = sum(num_layers[:i])
            blocks = [PVTBlock(
                embed_dims[i], num_heads[i], mlp_ratios[i], drop=drop_rate,
                drop_path=drop_paths[first + j], norm_eps=norm_eps, sr_ratio=sr_ratios[i],
                qkv_bias=qkv_bias, rel_pos_encoding=rel_pos_encoding,
                attn_drop=attn_drop_rate, form=form,
                num_prefix_tokens=int(has_cls), grid_shape=grid, ceil_mode=mask_padding,
                sr_norm_eps=embed_norm_eps) for j in range(num_layers[i])]
            pos_encodings = PlacedEncodings(
                pos_encoding, positions, num_layers[i], embed_dims=embed_dims[i], grid_shape=grid,
                num_prefix_embeds=int(has_cls), drop=drop_rate, followed=i + 1 < num_stages)
            self.stages.append(PVTStage(patch_embed, blocks, pos_encodings, with_cp=with_cp,
                                        cls_dims=embed_dims[i] if has_cls else None))
        share_encodings(rel_pos_sharing, self, list(self.stages))
        self.norm = None if pool is None else nn.LayerNorm(embed_dims[-1], eps=norm_eps)
        self.reset_parameters()
        self._start_freezing(self.stages, trainable, lora, frozen_dtype)

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
