"""Swin Transformer with any position encoding."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from ..encodings.base import RelativeConfig
from ..encodings.sharing import share_encodings, shared_encodings
from ..functional.extents import cells_of
from ..functional.grids import as_grid
from ..functional.image_sizes import ImgShapes, checked_one_batch, get_img_shapes, mask_images
from ..functional.masking import masked_mean, pad_map, tokens_to_map
from .archs import takes_arch
from .archs.swin import ARCHS, SIZES, TABLE, WindowSizes, sides_by_stage
from .base import Backbone
from .freezing import freeze
from .layers import PatchEmbed, check_sizes, init_transformer_weights
from .shared_arguments import check_are_sequences
from .swin_layers import PatchMerging, SwinBlock, SwinStage, Tokens, window_encoding_config


class Swin(Backbone):
    """Swin Transformer (Liu et al., ICCV 2021) and Swin Transformer V2 (Liu et al., CVPR 2022) with
    any position encoding.

    Any image size works: patches, merged cells and windows are zero-padded at the right and bottom.

    Args:
        arch: 'tiny', 'small', 'base' or 'large'; for V2 'v2-tiny', ... with windows of 8, or with
            '-w12', '-w16', '-w12to16' or '-w12to24' appended for the windows of its releases. It
            sets the arguments that are not given; the defaults below are V1's.
        embed_dims: channels of the first stage; each further stage has twice as many.
        num_layers, num_heads: blocks and heads of each stage.
        window_size: side of the windows, or (Wh, Ww); or a sequence with one of these per stage.
        mlp_ratio: ratio of hidden channels to channels in the MLPs.
        patch_size: side of a patch in pixels.
        rel_pos_encoding: by default Swin's table of biases; for V2 a network for windows of any
            size, :class:`~mmposenc.encodings.LogSpacedCPB`. Another encoding replaces it, None
            leaves it out, and a list that names it too adds to it. Its grid is the window.
        pretrained_window_size: the window, as in ``window_size``, that defines the unit of offsets
            in LogSpacedCPB. For weights trained with smaller windows, give those. 0:
            ``window_size``.
        cosine: cosine attention with a learned scale (V2, Eq. 2).
        post_norm: norms after attention, MLP and merging (V2, Sec. 3.2).
        qkv_bias: True: bias of queries, keys and values (V1); 'qv': of queries and values (V2).
        norm_eps: epsilon of the norms.
        out_indices: stages whose maps are returned, each with its own norm; later stages are not
            run or trained. Ignored with ``pool``.
        pool: None: return maps; 'gap': the mean of the last stage's tokens after the norm.
        pad_small_map: shift windows also if one of them spans the smaller side of the map. None:
            True for maps and False for 'gap', as in the releases for detection (mmdet) and for
            classification (mmpretrain's default).
        mask_window_padding: tokens do not attend to the zeros that fill the last windows. In the
            releases they do; False equals the releases for any size.
        options: arguments of all backbones, see
            :class:`~mmposenc.backbones.shared_arguments.SharedArguments`.
            ``frozen_stages=0`` freezes the patch embedding, n also the first n stages.

    Raises:
        ValueError: sizes, positions, encodings, stages or options do not fit.
    """

    archs, sizes = ARCHS, SIZES
    structure = ('pretrained_window_size', 'cosine', 'post_norm', 'qkv_bias', 'pad_small_map')
    #: Weights that a classifier's checkpoint does not have: the norms of maps.
    may_be_new = r'norm\d\.(weight|bias)'

    @takes_arch
    def __init__(self, arch: str | None = None, *, embed_dims: int | None = None,
                 num_layers: Sequence[int] | None = None,
                 num_heads: Sequence[int] | None = None, window_size: WindowSizes = 7,
                 mlp_ratio: float = 4.0, patch_size: int = 4,
                 rel_pos_encoding: RelativeConfig | None = TABLE,
                 pretrained_window_size: WindowSizes = 0, cosine: bool = False,
                 post_norm: bool = False, qkv_bias: bool | str = True, norm_eps: float = 1e-5,
                 out_indices: Sequence[int] | None = None, pool: str | None = None,
                 pad_small_map: bool | None = None, mask_window_padding: bool = True,
                 **options: Any) -> None:
        check_are_sequences(num_layers=num_layers, num_heads=num_heads, out_indices=out_indices)
        shared = self.shared_arguments(rel_pos_encoding=rel_pos_encoding, **options)
        super().__init__(shared)
        dims: Any = embed_dims  # The decorator takes_arch makes sure that it is not None.
        layers, heads = (tuple(each or ()) for each in (num_layers, num_heads))
        if len(layers) != len(heads) or not layers:
            raise ValueError(f'num_layers={layers} and num_heads={heads} must have one number for '
                             f'each stage')
        if min(layers) < 1:
            raise ValueError(f'num_layers={layers} must be positive')
        num_stages, self.post_norm = len(layers), post_norm
        windows = [as_grid(side, 'window_size').hw
                   for side in sides_by_stage(window_size, 'window_size', num_stages)]
        trained = sides_by_stage(pretrained_window_size, 'pretrained_window_size', num_stages)
        out_indices = tuple(range(num_stages)) if out_indices is None else tuple(out_indices)
        if not isinstance(patch_size, int):
            raise ValueError(f'patch_size={patch_size!r} must be a whole number')
        check_sizes(patch_size, mlp_ratio)
        if pool not in (None, 'gap'):
            raise ValueError(f"pool={pool!r} must be None or 'gap'; Swin has no class token")
        self._check_parts('stages', num_stages, out_indices)
        self.pool, self.patch_size = pool, patch_size
        self.out_indices = (num_stages - 1,) if pool else tuple(sorted(set(out_indices)))

        self.patch_embed = PatchEmbed(shared.in_channels, dims, patch_size, norm_eps=norm_eps,
                                      ceil_mode=True)
        self.drop = nn.Dropout(shared.drop_rate)
        grid = self.patch_embed.out_hw_shape(shared.image_hw)
        common = dict(
            shared.attention, mlp_encodings=shared.mlp_encodings, qkv_bias=qkv_bias, cosine=cosine,
            drop=shared.drop_rate,
            pad_small_map=pool is None if pad_small_map is None else pad_small_map,
            mask_window_padding=mask_window_padding, norm_eps=norm_eps, post_norm=post_norm)
        rates = iter(shared.drop_paths(sum(layers)))
        self.stages = nn.ModuleList()
        for i in range(num_stages):
            width, window = dims * 2 ** i, windows[i]
            common['rel_pos_encoding'] = window_encoding_config(rel_pos_encoding, trained[i])
            # The windows of every second block are shifted by half a window.
            blocks = [SwinBlock(width, heads[i], mlp_ratio, drop_path=next(rates),
                                window_size=window,
                                shift_size=(window[0] // 2, window[1] // 2) if j % 2 else 0,
                                grid_shape=grid, **common) for j in range(layers[i])]
            encodings = shared.placed_encodings(layers[i], embed_dims=width, grid_shape=grid,
                                                followed=i + 1 < num_stages, first=sum(layers[:i]))
            encodings.refuse_unsupported(
                query_key='attention in windows takes queries, keys and values from the same '
                          'tokens')
            merging = (PatchMerging(width, norm_eps, post_norm=self.post_norm)
                       if i + 1 < num_stages else None)
            self.stages.append(SwinStage(blocks, encodings, merging, self.with_cp))
            grid = grid if merging is None else merging.out_hw_shape(grid)
        share_encodings(shared.rel_pos_sharing, self, list(self.stages))
        for i in self.out_indices:
            self.add_module(f'norm{i}', nn.LayerNorm(dims * 2 ** i, eps=norm_eps))
        self._init_and_freeze(shared)

    def reset_parameters(self) -> None:
        """Initialise as the releases do: the patch projection as in torch, and for V2 the norms
        after residual branches with zeros."""
        init_transformer_weights(self)
        self.patch_embed.projection.reset_parameters()
        for module in self.modules():
            if isinstance(module, SwinBlock) and module.post_norm:
                nn.init.zeros_(module.norm1.weight)
                nn.init.zeros_(module.norm2.weight)

    def forward(self, x: Tensor, img_shapes: ImgShapes | None = None
                ) -> tuple[Tensor, ...]:
        """Extract features.

        Args:
            x: images (B, in_channels, H, W), padded at the right and bottom.
            img_shapes: (height, width) of each image in pixels, as in
                :meth:`mmposenc.backbones.PVT.forward`.

        Returns:
            Maps (B, embed_dims * 2^i, H_i, W_i) of the stages in ``out_indices``; with ``pool`` one
            (B, channels of the last stage).

        Raises:
            ValueError: sizes do not fit the batch.
        """
        full_hw = self.patch_embed.out_hw_shape(checked_one_batch(x).shape[-2:])
        shapes = get_img_shapes(x, img_shapes, self.mask_padding)
        x, mask = mask_images(x, shapes, self.patch_size)
        x, hw_shape = self.patch_embed(x)
        x = self.drop(x)
        outs = []
        for index, stage in enumerate(self.stages[:max(self.out_indices) + 1]):
            x, hw_shape, mask = stage(x, hw_shape, mask)
            full_hw = stage.pos_encodings.out_hw_shape(full_hw)
            if index in self.out_indices:
                outs.append(self._returned_map_or_mean((x, hw_shape, mask), index, full_hw))
            if index < max(self.out_indices):
                x, hw_shape, mask = stage.merge(x, hw_shape, mask)
                full_hw = stage.downsample.out_hw_shape(full_hw)
        return tuple(outs)

    @property
    def strides(self) -> tuple[int, ...]:
        """Stride of each map in pixels."""
        return tuple(self.patch_size * 2 ** i for i in self.out_indices)

    def _returned_map_or_mean(self, tokens: Tokens, index: int, full_hw: tuple[int, int]) -> Tensor:
        (x, hw_shape), cells = tokens[:2], cells_of(tokens[2])
        x = getattr(self, f'norm{index}')(x)
        if self.pool is not None:
            return masked_mean(x, cells)
        out = tokens_to_map(x, hw_shape)
        return pad_map(out if cells is None else out.masked_fill(cells[:, None], 0), full_hw)

    def _freeze(self) -> None:
        last = max(self.out_indices)
        # In distributed training, a trained parameter that is not used raises an error.
        for module in (*self.stages[last + 1:], self.stages[last].downsample):
            if module is not None:
                module.requires_grad_(False)
        if self.frozen_stages < 0:
            return
        frozen = [self.patch_embed, *self.stages[:self.frozen_stages]]
        frozen += [getattr(self, f'norm{i}') for i in self.out_indices if i < self.frozen_stages]
        if self.frozen_stages > last:
            frozen += shared_encodings(self)
        freeze(self, frozen, trainable=self.trainable)
