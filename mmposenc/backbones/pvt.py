"""Pyramid Vision Transformer with any position encoding."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from ..encodings.checks import check_choices
from ..encodings.sharing import share_encodings, shared_encodings
from ..functional.extents import cells_of, mask_at_step
from ..functional.image_sizes import ImgShapes, checked_one_batch, get_img_shapes, mask_images
from ..functional.masking import masked_mean, pad_map, tokens_to_map
from .archs import takes_arch
from .archs.pvt import ARCHS, SIZES
from .base import Backbone
from .freezing import freeze
from .layers import PatchEmbed, init_transformer_weights
from .pvt_layers import PVTBlock, PVTStage
from .shared_arguments import check_are_sequences


class PVT(Backbone):
    """Pyramid Vision Transformer (Wang et al., ICCV 2021) with any position encoding; with its
    options PVT v2 (Wang et al., CVM 2022), SegFormer's MiT (Xie et al., NeurIPS 2021) and Twins
    (Chu et al., NeurIPS 2021).

    Args:
        arch: a model of :data:`mmposenc.backbones.archs.pvt.ARCHS`: 'tiny', 'small', 'medium' or
            'large' of PVT; 'v2-b0' to 'v2-b5' and 'v2-b2-linear'; 'mit-b0' to 'mit-b5';
            'pcpvt-small', 'pcpvt-base', 'pcpvt-large', 'svt-small', 'svt-base' and 'svt-large' of
            Twins. Explicit arguments override it, also None: with ``pos_encoding=None`` PVT v2 has
            no convolution in its MLPs.
        embed_dims, num_layers, num_heads, sr_ratios, mlp_ratios: sizes of each stage.
        patch_sizes: side of a patch in each stage, in cells of the stage before.
        overlap: overlapping patches: 7x7 for a side of 4, 3x3 for 2 (PVT v2, MiT).
        pad_patches: zero-pad maps to whole patches (Twins in mmseg and mmpretrain); False: drop a
            last partial patch, as in PVT. Overlapping patches and ``mask_padding`` always pad.
        stage_norm: apply a norm to the output of each stage (PVT v2, MiT; Twins in mmseg); a list
            says it for each stage. With ``pool`` and a norm of the last stage there is no further
            norm.
        key_cells: average keys to this number of rows and columns in every stage (PVT v2's linear
            attention), instead of ``sr_ratios``.
        window_sizes: side of the windows of each stage; blocks 0, 2, ... of a stage attend in
            windows (Twins-SVT). None: every block attends to the whole map.
        mask_window_padding: tokens do not attend to the zeros that fill the last windows. In the
            release and in timm they do; False equals those for any size. 'both': they do not if
            both rows and columns of a map had to be filled up, as in mmseg and mmpretrain; with
            ``mask_padding`` this is True.
        qkv_bias: bias of queries, keys and values.
        proj_bias: bias of the output of attention to the whole map (mmdet, mmseg: ``qkv_bias``).
        norm_eps, embed_norm_eps: epsilon of the blocks' norms, and of the norms after patch
            embeddings and spatial reductions (mmdet: 1e-6 for both).
        sr_norm_eps, stage_norm_eps: epsilon of the norms after spatial reductions, and of stages,
            where they differ from ``embed_norm_eps`` and ``norm_eps``.
        out_indices: stages whose maps are returned; ignored with ``pool``.
        pool: None: return maps; 'gap': the mean of the last stage's tokens after the norm; 'cls':
            its class token after the norm.
        options: arguments of all backbones, see
            :class:`~mmposenc.backbones.shared_arguments.SharedArguments`. With ``mask_padding``
            the size of each image is rounded up to whole cells.

    Raises:
        ValueError: sizes, positions, encodings, stages or options do not fit.
    """

    archs, sizes, structure = ARCHS, SIZES, ('overlap', 'qkv_bias')
    #: Weights that a classifier's checkpoint does not have: the norms of maps.
    may_be_new = r'stages\.\d+\.norm\.(weight|bias)'

    @takes_arch
    def __init__(self, arch: str | None = None, *,
                 embed_dims: Sequence[int] = (64, 128, 320, 512),
                 num_layers: Sequence[int] | None = None,
                 num_heads: Sequence[int] = (1, 2, 5, 8), sr_ratios: Sequence[int] = (8, 4, 2, 1),
                 mlp_ratios: Sequence[float] = (8, 8, 4, 4),
                 patch_sizes: Sequence[int] = (4, 2, 2, 2), overlap: bool = False,
                 pad_patches: bool = False, stage_norm: bool | Sequence[bool] = False,
                 key_cells: int | None = None, window_sizes: Sequence[int] | None = None,
                 mask_window_padding: bool | str = True, qkv_bias: bool = True,
                 proj_bias: bool = True, norm_eps: float = 1e-6, embed_norm_eps: float = 1e-5,
                 sr_norm_eps: float | None = None, stage_norm_eps: float | None = None,
                 out_indices: Sequence[int] = (0, 1, 2, 3), pool: str | None = None,
                 **options: Any) -> None:
        check_are_sequences(embed_dims=embed_dims, num_layers=num_layers, num_heads=num_heads,
                            sr_ratios=sr_ratios, mlp_ratios=mlp_ratios, patch_sizes=patch_sizes,
                            window_sizes=window_sizes, out_indices=out_indices)
        shared = self.shared_arguments(**options)
        super().__init__(shared)
        assert num_layers is not None  # The decorator takes_arch has put the sizes in.
        _check_stage_sizes(embed_dims=embed_dims, num_layers=num_layers, num_heads=num_heads,
                           sr_ratios=sr_ratios, mlp_ratios=mlp_ratios, patch_sizes=patch_sizes,
                           **({} if window_sizes is None else dict(window_sizes=window_sizes)))
        check_choices(pool=(pool, (None, 'gap', 'cls')))
        num_stages = len(num_layers)
        self._check_parts('stages', num_stages, out_indices)
        with_norm = ([stage_norm] * num_stages if isinstance(stage_norm, bool)
                     else list(stage_norm))
        if len(with_norm) != num_stages:
            raise ValueError(f'stage_norm={stage_norm!r} must have {num_stages} values, or be one')
        if self.mask_padding and mask_window_padding:
            # So that an image's last windows do not depend on the other images of its batch.
            mask_window_padding = True
        sr_norm_eps = embed_norm_eps if sr_norm_eps is None else sr_norm_eps
        stage_norm_eps = norm_eps if stage_norm_eps is None else stage_norm_eps
        self.out_indices, self.pool = tuple(out_indices), pool
        self._last = max(self.out_indices) if pool is None else num_stages - 1
        self.patch_sizes = tuple(patch_sizes)

        drop_paths, grid = iter(shared.drop_paths(sum(num_layers))), shared.image_hw
        self.stages = nn.ModuleList()
        for i in range(num_stages):
            patch_embed = PatchEmbed(embed_dims[i - 1] if i else shared.in_channels, embed_dims[i],
                                     patch_sizes[i], norm_eps=embed_norm_eps,
                                     ceil_mode=self.mask_padding or pad_patches, overlap=overlap)
            grid = patch_embed.out_hw_shape(grid)
            has_cls = pool == 'cls' and i == num_stages - 1
            blocks = [PVTBlock(
                embed_dims[i], num_heads[i], mlp_ratios[i], drop=shared.drop_rate,
                drop_path=next(drop_paths), norm_eps=norm_eps, qkv_bias=qkv_bias,
                num_prefix_tokens=int(has_cls), grid_shape=grid, mlp_encodings=shared.mlp_encodings,
                window_size=None if window_sizes is None or j % 2 else window_sizes[i],
                mask_window_padding=mask_window_padding, reduction=dict(
                    sr_ratio=sr_ratios[i], ceil_mode=self.mask_padding, proj_bias=proj_bias,
                    sr_norm_eps=sr_norm_eps, key_cells=key_cells), **shared.attention)
                for j in range(num_layers[i])]
            pos_encodings = shared.placed_encodings(
                num_layers[i], embed_dims=embed_dims[i], grid_shape=grid,
                num_prefix_embeds=int(has_cls), drop=shared.drop_rate, followed=i + 1 < num_stages,
                first=sum(num_layers[:i]))
            self.stages.append(PVTStage(
                patch_embed, blocks, pos_encodings, with_cp=self.with_cp,
                cls_dims=embed_dims[i] if has_cls else None,
                norm=nn.LayerNorm(embed_dims[i], eps=stage_norm_eps) if with_norm[i] else None))
        share_encodings(shared.rel_pos_sharing, self, list(self.stages))
        self.norm = None if pool is None or with_norm[-1] else nn.LayerNorm(embed_dims[-1],
                                                                            eps=norm_eps)
        self._init_and_freeze(shared)

    def reset_parameters(self) -> None:
        """Initialise as in the release."""
        init_transformer_weights(self)
        for stage in self.stages:
            if stage.cls_token is not None:
                nn.init.trunc_normal_(stage.cls_token, std=0.02)

    def forward(self, x: Tensor, img_shapes: ImgShapes | None = None
                ) -> tuple[Tensor, ...]:
        """Extract features.

        Args:
            x: images (B, in_channels, H, W), padded at the right and bottom.
            img_shapes: (height, width) of each image in pixels, for ``mask_padding``; by default
                those that a data preprocessor of this project stored on the batch. A tensor (B, 2)
                if they are an input of an exported program.

        Returns:
            Maps (B, embed_dims[i], H_i, W_i) of the stages in ``out_indices``; with ``pool`` one
            (B, embed_dims[-1]).

        Raises:
            ValueError: an image is smaller than a patch, or sizes do not fit the batch.
        """
        height, width = checked_one_batch(x).shape[-2:]
        if min(height, width) < self.patch_sizes[0] and not self.stages[0].patch_embed.ceil_mode:
            raise ValueError(f'an image of {height}x{width} is smaller than the patch '
                             f'of {self.patch_sizes[0]}x{self.patch_sizes[0]}; enlarge it')
        full_hw = (height, width)
        shapes = get_img_shapes(x, img_shapes, self.mask_padding)
        x, mask = mask_images(x, shapes, self.patch_sizes[0])
        outs = []
        for index, stage in enumerate(self.stages[:self._last + 1]):
            tokens, hw_shape, mask = stage(x, mask)
            full_hw = stage.out_hw_shape(full_hw)
            if self.pool is not None and index == self._last:
                return (self._pooled_for_head(tokens, cells_of(mask)),)
            x = tokens_to_map(tokens, hw_shape)
            if mask is not None:
                x = x.masked_fill(cells_of(mask)[:, None], 0)
                # Padding is at the right and bottom, so a cell is padding if its first part is.
            if index in self.out_indices:
                outs.append(pad_map(x, full_hw))
            if mask is not None and index < self._last:
                mask = mask_at_step(mask, self.patch_sizes[index + 1])
        return tuple(outs)

    @property
    def strides(self) -> tuple[int, ...]:
        """Stride of each map in pixels."""
        return tuple(math.prod(self.patch_sizes[:i + 1]) for i in sorted(self.out_indices))

    def _pooled_for_head(self, tokens: Tensor, mask: Tensor | None) -> Tensor:
        tokens = tokens[:, :1] if self.pool == 'cls' else tokens
        tokens = tokens if self.norm is None else self.norm(tokens)
        return tokens[:, 0] if self.pool == 'cls' else masked_mean(tokens, mask)

    def _freeze(self) -> None:
        # In distributed training, a trained parameter that is not used raises an error.
        for stage in self.stages[self._last + 1:]:
            stage.requires_grad_(False)
        frozen: list[nn.Module] = [*self.stages[:max(self.frozen_stages, 0)]]
        if self.frozen_stages == len(self.stages):
            frozen += shared_encodings(self)
        freeze(self, frozen, trainable=self.trainable)


def _check_stage_sizes(**sizes: Sequence[float]) -> None:
    lengths = {name: len(values) for name, values in sizes.items()}
    if len(set(lengths.values())) != 1:
        raise ValueError('each stage needs one value of every size, but the lengths are '
                         + ', '.join(f'{name}: {length}' for name, length in lengths.items()))
    for name, values in sizes.items():
        if not all(value > 0 for value in values):
            raise ValueError(f'{name}={tuple(values)} must be positive')
