"""Swin Transformer with any position encoding."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from ..encodings.placement import EncodingConfigs, PlacedEncodings, Positions
from ..encodings.sharing import share_encodings, shared_encodings
from ..functional.image_sizes import ImgShapes, get_img_shapes, mask_images
from ..functional.masking import masked_mean, pad_map, tokens_to_map
from .checkpoints import PretrainedMixin
from .freezing import Freezing, freeze
from .layer_depth import LayerDepths
from .layers import (
    PatchEmbed,
    check_parts,
    check_rates,
    check_sizes,
    init_transformer_weights,
    rising_rates,
)
from .modules import BaseModule
from .swin_archs import WindowSizes, resolve_arch
from .swin_layers import PatchMerging, SwinBlock, SwinStage, Tokens, window_encoding


class Swin(Freezing, LayerDepths, PretrainedMixin, BaseModule):
    """Swin Transformer (Liu et al., ICCV 2021) and Swin Transformer V2 (Liu et al., CVPR 2022) with
    any position encoding.

    Any image size works: patches, merged cells and windows are filled up with zeros to the right
    and below.

    Args:
        arch: 'tiny', 'small', 'base' or 'large'; 'v2-tiny', ... for V2 with windows of 8, and with
            '-w12', '-w16', '-w12to16' or '-w12to24' behind it with those of its releases. What is
            None below is as the arch says, else as V1; what is given overrides it.
        embed_dims: channels of the first stage; each stage has twice those of the one before.
        num_layers, num_heads: blocks and heads of each stage.
        window_size: side of the windows, or (Wh, Ww); or a sequence of these, one a stage. V1: 7.
        mlp_ratio: hidden channels of the MLPs, in units of the stage's channels.
        patch_size: side of a patch in pixels.
        in_channels: channels of the image.
        pos_encoding: a TokenEncoding config, several, or None; each stage gets its own.
        positions: where in each stage: -1 before the first block, i after block i; 'every': after
            all blocks but the very last; None for each encoding's usual place, which for PEG is
            after block 0.
        window_bias: Swin's own table of biases (True, V1), none (False), or 'log_cpb' (V2):
            :class:`~mmposenc.encodings.LogSpacedCPB`, a network that serves windows of any size.
        pretrained_window_size: window, as ``window_size``, that sets the unit of offsets of
            'log_cpb': that of training where weights go to larger windows. 0 is ``window_size``.
        cosine: attention by cosines with a learned scale (V2, Eq. 2).
        post_norm: norms behind attention, MLP and merging (V2, Sec. 3.2).
        rel_pos_encoding: a RelativeEncoding config for every attention, whose grid is the window;
            added to the window bias where that is on.
        rel_pos_sharing: 'layer' gives each attention an encoding of its own, 'stage' one to all
            blocks of a stage, 'all' one to all blocks, which must have the same heads and sizes,
            window bias included.
        img_size: image side or (H, W) that learned tables of ``pos_encoding`` are made for.
        qkv_bias: bias of queries, keys and values (True, V1), or of queries and values ('qv', V2).
        drop_rate, attn_drop_rate, drop_path_rate: dropout of outputs, attention weights, and
            (rising over the blocks from 0) whole residual branches.
        form: how attention is computed, see :func:`mmposenc.attention.attend`.
        norm_eps: epsilon of the norms.
        out_indices: stages to return as maps, each through a norm of its own; later stages are
            neither run nor trained. Ignored with ``pool``.
        pool: None returns maps; 'gap' the mean of the last stage's normed tokens.
        pad_small_map: shift windows also where one of them spans the smaller side of the map. None
            shifts them for maps and not for 'gap', as the releases for detection and for
            classification (mmdet; mmpretrain by default).
        mask_window_padding: give the zeros that fill up the last windows no attention. The releases
            let tokens attend to them: off, those are met number for number on any size.
        frozen_stages: 0 freezes the patch embedding, n also the first n stages; -1 trains all. An
            encoding they share with others is trained.
        trainable, lora, frozen_dtype: what of frozen stages is trained all the same, and the dtype
            that they compute in; as those of :class:`~mmposenc.backbones.PVT`.
        with_cp: recompute blocks in the backward pass to save memory.
        mask_padding: keep batch padding out: an image in a padded batch gives what it gives alone;
            maps are zero on its padding. Needs to know the images' sizes, see
            :class:`~mmposenc.backbones.PVT`.
        init_cfg: ``dict(type='Pretrained', checkpoint=...)`` takes this project's files, the
            official ones, timm's, mmpretrain's and mmdet's.

    Raises:
        ValueError: for sizes, positions, encodings, stages or options that do not fit.
    """

    #: Norms of the maps are new where a classifier is loaded.
    may_be_new = r'norm\d\.(weight|bias)'

    def __init__(self, arch: str | None = None, *,
                 embed_dims: int | None = None,
                 num_layers: Sequence[int] | None = None,
                 num_heads: Sequence[int] | None = None,
                 window_size: WindowSizes | None = None,
                 mlp_ratio: float = 4.0,
                 patch_size: int = 4,
                 in_channels: int = 3,
                 pos_encoding: EncodingConfigs = None,
                 positions: Positions = None,
                 window_bias: bool | str | None = None,
                 pretrained_window_size: WindowSizes | None = None,
                 cosine: bool | None = None,
                 post_norm: bool | None = None,
                 rel_pos_encoding: dict[str, Any] | None = None,
                 rel_pos_sharing: str = 'layer',
                 img_size: int | tuple[int, int] = 224,
                 qkv_bias: bool | str | None = None,
                 drop_rate: float = 0.0,
                 attn_drop_rate: float = 0.0,
                 form: str = 'auto',
                 drop_path_rate: float = 0.1,
                 norm_eps: float = 1e-5,
                 out_indices: Sequence[int] | None = None,
                 pool: str | None = None,
                 pad_small_map: bool | None = None,
                 mask_window_padding: bool = True,
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
        found = resolve_arch(
            arch, embed_dims=embed_dims, num_layers=num_layers, num_heads=num_heads,
            window_size=window_size, window_bias=window_bias, qkv_bias=qkv_bias, cosine=cosine,
            pretrained_window_size=pretrained_window_size, post_norm=post_norm)
        dims, layers, heads = found['embed_dims'], found['num_layers'], found['num_heads']
        num_stages, self.post_norm = len(layers), found['post_norm']
        out_indices = tuple(range(num_stages)) if out_indices is None else tuple(out_indices)
        check_sizes(patch_size, mlp_ratio)
        if pool not in (None, 'gap'):
            raise ValueError(f"pool={pool!r} must be None or 'gap'; Swin has no class token")
        check_parts('stages', num_stages, out_indices, frozen_stages)
        self.pool, self.patch_size = pool, patch_size
        self.out_indices = (num_stages - 1,) if pool else tuple(sorted(set(out_indices)))
        self.frozen_stages, self.mask_padding = frozen_stages, mask_padding

        self.patch_embed = PatchEmbed(in_channels, dims, patch_size, norm_eps=norm_eps,
                                      ceil_mode=True)
        self.drop = nn.Dropout(drop_rate)
        side = (img_size, img_size) if isinstance(img_size, int) else tuple(img_size)
        grid = self.patch_embed.out_hw_shape(side)
        common = dict(
            qkv_bias=found['qkv_bias'], cosine=found['cosine'], attn_drop=attn_drop_rate, form=form,
            pad_small_map=pool is None if pad_small_map is None else pad_small_map,
            mask_window_padding=mask_window_padding, drop=drop_rate, norm_eps=norm_eps,
            post_norm=self.post_norm)
        rates = iter(rising_rates(drop_path_rate, sum(layers)))
        self.stages = nn.ModuleList()
        for i in range(num_stages):
            width, window = dims * 2 ** i, found['window_size'][i]
            encoding = window_encoding(
                found['window_bias'], found['pretrained_window_size'][i], rel_pos_encoding)
            # Every second block is shifted by half a window.
            blocks = [SwinBlock(width, heads[i], mlp_ratio, drop_path=next(rates),
                                window_size=window, rel_pos_encoding=encoding,
                                shift_size=(window[0] // 2, window[1] // 2) if j % 2 else 0,
                                **common) for j in range(layers[i])]
            encodings = PlacedEncodings(pos_encoding, positions, layers[i], embed_dims=width,
                                        grid_shape=grid, followed=i + 1 < num_stages)
            encodings.refuse(query_key='attention in windows takes queries, keys and values from '
                                       'the same tokens')
            merging = (PatchMerging(width, norm_eps, post_norm=self.post_norm)
                       if i + 1 < num_stages else None)
            self.stages.append(SwinStage(blocks, encodings, merging, with_cp))
            grid = grid if merging is None else merging.out_hw_shape(grid)
        share_encodings(rel_pos_sharing, self, list(self.stages))
        for i in self.out_indices:
            self.add_module(f'norm{i}', nn.LayerNorm(dims * 2 ** i, eps=norm_eps))
        self.reset_parameters()
        self._start_freezing(self.stages, trainable, lora, frozen_dtype)

    def reset_parameters(self) -> None:
        """Initialise as the releases: the patch projection as torch does, norms behind branches at
        zero."""
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
            x: images (B, in_channels, H, W), padded to the right and below.
            img_shapes: height and width in pixels that each image fills, as
                :meth:`mmposenc.backbones.PVT.forward` takes them.

        Returns:
            Maps (B, embed_dims * 2^i, H_i, W_i) of the stages in ``out_indices``; with ``pool`` one
            (B, channels of the last stage).

        Raises:
            ValueError: for sizes that do not fit the batch.
        """
        full_hw = self.patch_embed.out_hw_shape(x.shape[-2:])
        shapes = get_img_shapes(x, img_shapes, self.mask_padding)
        x, mask = mask_images(x, shapes, self.patch_size)
        x, hw_shape = self.patch_embed(x)
        x = self.drop(x)
        outs = []
        for index in range(max(self.out_indices) + 1):
            stage = self.stages[index]
            last = index == max(self.out_indices)
            with self._precision(index, x):
                out, (x, hw_shape, mask) = stage(x, hw_shape, mask, merge=not last)
            out, x = (self._full(out[0], index), *out[1:]), self._full(x, index)
            full_hw = stage.pos_encodings.out_hw_shape(full_hw)
            if index in self.out_indices:
                outs.append(self._out(out, index, full_hw))
            if not last:
                full_hw = stage.downsample.out_hw_shape(full_hw)
        return tuple(outs)

    @property
    def strides(self) -> tuple[int, ...]:
        """Pixels of a side of a cell in each of the maps."""
        return tuple(self.patch_size * 2 ** i for i in self.out_indices)

    def _out(self, tokens: Tokens, index: int, full_hw: tuple[int, int]) -> Tensor:
        x, hw_shape, mask = tokens
        x = getattr(self, f'norm{index}')(x)
        if self.pool is not None:
            return masked_mean(x, mask)
        out = tokens_to_map(x, hw_shape)
        return pad_map(out if mask is None else out.masked_fill(mask[:, None], 0), full_hw)

    def _freeze(self) -> None:
        last = max(self.out_indices)
        # What is never run would break distributed training if it were trained.
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
