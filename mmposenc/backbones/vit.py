"""The plain vision transformer (ViT and its successors) with any position encoding."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..attention.norms import NORMS
from ..encodings.sharing import share_encodings, shared_encodings
from ..functional.extents import MaskLike, cells_of, token_mask
from ..functional.grids import pair
from ..functional.image_sizes import ImgShapes, checked_one_batch, get_img_shapes, mask_images
from ..functional.masking import masked_mean, pad_map, tokens_to_map
from .archs import takes_arch
from .archs.vit import ARCHS, SIZES
from .base import Backbone
from .freezing import freeze
from .layers import PatchEmbed, block_windows, check_sizes, init_transformer_weights, run_block
from .shared_arguments import check_are_sequences
from .vit_layers import (
    LayerScales,
    SAMNeck,
    ViTBlock,
    check_blocks,
    check_copied,
    check_mlp,
    check_norms,
    check_output,
    check_prefix_rows,
    check_tokens,
    window_options,
)


class ViT(Backbone):
    """Plain vision transformer (ViT, Dosovitskiy et al., ICLR 2021; DeiT, Touvron et al., ICML
    2021) with any position encoding (with :class:`~mmposenc.encodings.PEG` it is CPVT). Its options
    cover DeiT III, DINOv2, BEiT, the image encoders of CLIP, SigLIP and SAM, and ViTDet.

    Any image size works: the last row and column of patches are padded with zeros.

    Args:
        arch: a model of :data:`mmposenc.backbones.archs.vit.ARCHS`. 'tiny', 'small', 'base' and
            'large' set only sizes; names such as 'dinov2-small-reg' set all arguments of the model.
            Explicit arguments override it, also None.
        patch_size: side of a patch, or its (rows, columns), in pixels. A file of another patch size
            is resized when it is loaded (FlexiViT).
        embed_dims, num_layers, num_heads: sizes.
        mlp: 'mlp' or 'swiglu' (gated, Shazeer 2020).
        act: activation of 'mlp': 'gelu', 'gelu_tanh' (SigLIP), 'quick_gelu' (CLIP) or 'relu'.
        mlp_ratio, mlp_hidden_dims: width of the MLP's hidden layer, relative to ``embed_dims``, or
            in channels if given ('swiglu': after the gates).
        pool: 'cls': return the class token after the norm; 'gap': the mean of the patches after the
            norm; None: maps.
        class_token: whether there is a class token before the patches; None: if ``pool='cls'``.
        distilled: add a distillation token after the class token (DeiT, Sec. 4).
        register_tokens: number of registers after these tokens (Darcet et al., ICLR 2024).
        out_indices: return maps of these blocks, with any ``pool``; later blocks are not run or
            trained. None: with ``pool=None`` the map of the last block.
        with_image: return the images, zero on padding, before the maps, for a neck that reads them
            (:class:`~mmposenc.openmmlab.necks.STA`).
        pre_norm: a norm before the first block (CLIP).
        patch_bias: bias of the projection of patches; None: without ``pre_norm``.
        ceil_mode: fill the last row and column of patches with zeros; False leaves out pixels that
            are no whole patch, but with ``mask_padding``.
        final_norm: True: norm of the last block's output, required with ``pool``; 'every': of all
            maps of ``out_indices``, as in DINOv2; 'pooled': only of the mean that ``pool='gap'``
            returns (timm's fc_norm).
        conv_projection: blocks whose queries, keys and values are 3x3 convolutions of the tokens
            (CvT); (0,) is the baseline in CPVT.
        qkv_bias: bias of queries, keys and values; 'qv': of queries and values.
        window_size: side of the windows in cells, or (Wh, Ww), in which blocks attend, without
            shifts (ViTDet, Li et al., ECCV 2022). None: attend to the whole grid.
        window_count: instead of ``window_size``, rows and columns of windows on a grid of any size
            (RF-DETR, Robinson et al. 2025). With ``mask_padding`` those of each image.
        window_tokens: 'shared': class token and registers are in every window, and the mean over
            the windows goes on. 'copied': each window has its own, which meet in
            ``global_blocks``, and maps and ``pool`` have their mean (RF-DETR; with
            ``window_count``).
        window_positions: 'window': relative encodings have the positions in the window; 'grid':
            rotary ones those of the whole grid, which a model had that was pretrained without
            windows.
        global_blocks: blocks that attend to the whole grid although there are windows.
        mask_window_padding: tokens do not attend to the zeros that fill the last windows. In the
            releases they do; False equals the releases for any size, but windows by number that
            hold no cell then count in the mean of prefix tokens that windows share.
        attn_norm, mlp_norm: norms inside attention and MLP, before their last layers (EVA-02, Fang
            et al. 2023, Sec. 2.1). ``attn_norm='qk'``: norms of queries and keys of each head
            instead, before any rotation.
        mlp_bias: biases of the MLP's layers.
        neck_channels: output channels of SAM's two convolutions after the last block; None: no
            neck.
        layer_scale_init_value: initial value of LayerScale (CaiT, DeiT III), or two, of attention
            and of the MLP; None: no LayerScale.
        norm: 'layer' or 'rms' (:class:`~mmposenc.attention.norms.RMSNorm`), the kind of all norms.
        norm_eps: epsilon of the norms.
        drop_path_rate: stochastic depth as in all backbones, by default 0.
        options: arguments of all backbones, see
            :class:`~mmposenc.backbones.shared_arguments.SharedArguments`.
            ``frozen_stages=0`` freezes everything before the first block, n also the first n
            blocks, and ``num_layers`` the whole backbone, including last norm and shared encodings.

    Raises:
        ValueError: sizes, positions, encodings, blocks or options do not fit.
    """

    archs, sizes = ARCHS, SIZES
    structure: Sequence[str] = (
        'mlp', 'act', 'mlp_hidden_dims', 'class_token', 'distilled', 'register_tokens', 'pre_norm',
        'conv_projection', 'qkv_bias', 'window_count', 'window_tokens', 'window_positions',
        'global_blocks', 'attn_norm', 'mlp_norm', 'mlp_bias', 'norm', 'neck_channels',
        'layer_scale_init_value')

    @takes_arch
    def __init__(self, arch: str | None = None, *,
                 patch_size: int | tuple[int, int] = 16, embed_dims: int | None = None,
                 num_layers: int | None = None, num_heads: int | None = None, mlp: str = 'mlp',
                 act: str = 'gelu', mlp_ratio: float = 4.0, mlp_hidden_dims: int | None = None,
                 pool: str | None = 'cls', class_token: bool | None = None,
                 distilled: bool = False, register_tokens: int = 0,
                 out_indices: Sequence[int] | None = None, with_image: bool = False,
                 pre_norm: bool = False,
                 patch_bias: bool | None = None, ceil_mode: bool = True,
                 final_norm: bool | str = True, conv_projection: Sequence[int] = (),
                 qkv_bias: bool | str = True, window_size: int | tuple[int, int] | None = None,
                 window_count: int | tuple[int, int] | None = None,
                 window_tokens: str = 'shared', window_positions: str = 'window',
                 global_blocks: Sequence[int] = (), mask_window_padding: bool = True,
                 attn_norm: bool | str = False, mlp_norm: bool = False, mlp_bias: bool = True,
                 neck_channels: int | None = None, layer_scale_init_value: LayerScales = None,
                 norm: str = 'layer', norm_eps: float = 1e-6, drop_path_rate: float = 0.0,
                 **options: Any) -> None:
        check_are_sequences(out_indices=out_indices, conv_projection=conv_projection,
                            global_blocks=global_blocks)
        shared = self.shared_arguments(drop_path_rate=drop_path_rate, **options)
        super().__init__(shared)
        # The decorator takes_arch makes sure that these are not None.
        dims, layers, heads = embed_dims, num_layers, num_heads
        class_token = pool == 'cls' if class_token is None else class_token
        prefix = class_token + distilled + register_tokens
        check_sizes(patch_size, mlp_ratio)
        check_mlp(mlp, act, mlp_hidden_dims)
        check_norms(norm, attn_norm)
        check_tokens(pool, class_token, distilled, register_tokens)
        windows = window_options(window_size, window_count, window_tokens, window_positions,
                                 mask_window_padding)
        check_blocks(layers, windows is not None, global_blocks, conv_projection)
        self._check_parts('blocks', layers, out_indices)
        check_output(layers, pool, out_indices, final_norm, neck_channels, with_image)
        self.patch_size = patch_size if isinstance(patch_size, int) else pair(patch_size)
        self.with_image = with_image
        self.num_prefix_tokens = prefix
        # How many copies of the prefix tokens the blocks have: one for each window, if windows have
        # their own.
        self._copies = math.prod(windows['window_count']) if windows and windows['copied'] else 1

        def token(count: int) -> nn.Parameter | None:
            return nn.Parameter(torch.zeros(1, count, dims)) if count else None

        self.cls_token, self.dist_token = token(class_token), token(distilled)
        self.register_tokens = token(register_tokens)
        self.patch_embed = PatchEmbed(shared.in_channels, dims, patch_size, norm_eps=None,
                                      ceil_mode=ceil_mode or self.mask_padding,
                                      bias=not pre_norm if patch_bias is None else patch_bias)
        grid = self.patch_embed.out_hw_shape(shared.image_hw)
        # Registers have no position, and a table has no rows for them.
        self.pos_encodings = shared.placed_encodings(
            layers, embed_dims=dims, drop=shared.drop_rate, grid_shape=grid,
            num_prefix_embeds=class_token + distilled)
        check_prefix_rows(self.pos_encodings, prefix)
        make_norm = partial(NORMS[norm], eps=norm_eps)
        self.norm_pre = make_norm(dims) if pre_norm else nn.Identity()
        self.blocks = nn.ModuleList(ViTBlock(
            dims, heads, mlp_hidden_dims or int(dims * mlp_ratio), drop=shared.drop_rate,
            drop_path=rate, norm=norm, norm_eps=norm_eps,
            layer_scale_init_value=layer_scale_init_value,
            act='swiglu' if mlp == 'swiglu' else act, attn_norm=attn_norm, mlp_norm=mlp_norm,
            mlp_bias=mlp_bias, qkv_bias=qkv_bias, num_prefix_tokens=self._num_prefix(index),
            grid_shape=grid, conv_projection=index in conv_projection,
            windows=None if index in global_blocks else windows,
            mlp_encodings=shared.mlp_encodings, **shared.attention)
            for index, rate in enumerate(shared.drop_paths(layers)))
        if self._copies > 1:
            check_copied(self.pos_encodings, self.blocks)
        share_encodings(shared.rel_pos_sharing, self, [self.blocks])
        self._make_output(dims, layers, pool, out_indices, final_norm, make_norm, neck_channels)
        self._init_and_freeze(shared)

    def _make_output(self, embed_dims: int, num_layers: int, pool: str | None,
                     out_indices: Sequence[int] | None, final_norm: bool | str,
                     make_norm: Callable[[int], nn.Module], neck_channels: int | None) -> None:
        """Set ``pool`` and ``out_indices``, and build ``norm``, ``fc_norm`` and ``neck``."""
        if out_indices is None and pool is None:
            out_indices = (num_layers - 1,)
        self.pool = pool
        self.out_indices = None if out_indices is None else tuple(sorted(set(out_indices)))
        self._last = num_layers - 1 if self.out_indices is None else max(self.out_indices)
        self._normed = tuple(range(num_layers)) if final_norm == 'every' else (
            (num_layers - 1,) if final_norm is True else ())
        has_norm = final_norm == 'every' or self._last in self._normed
        self.norm = make_norm(embed_dims) if has_norm else None
        norms_mean = final_norm == 'pooled' and self.out_indices is None
        self.fc_norm = make_norm(embed_dims) if norms_mean else None
        self.neck = None if neck_channels is None else SAMNeck(embed_dims, neck_channels)

    def reset_parameters(self) -> None:
        """Initialise as DeiT: the patch projection as in torch, other layers by
        :func:`init_transformer_weights`, tokens by a truncated normal of standard deviation
        0.02."""
        init_transformer_weights(self)
        self.patch_embed.projection.reset_parameters()
        for token in self._prefix_parameters():
            nn.init.trunc_normal_(token, std=0.02)

    def forward(self, x: Tensor, img_shapes: ImgShapes | None = None) -> tuple[Tensor, ...]:
        """Extract features.

        Args:
            x: images (B, in_channels, H, W), padded at the right and bottom.
            img_shapes: (height, width) of each image in pixels, as in
                :meth:`mmposenc.backbones.PVT.forward`.

        Returns:
            A tuple of tensors. With ``out_indices`` a map (B, embed_dims, H', W') for each. Without
            ``out_indices`` one tensor (B, embed_dims); with ``distilled`` it is (2, B, embed_dims),
            class tokens, then distillation tokens, which mmpretrain's DeiTClsHead unpacks.

        Raises:
            ValueError: sizes do not fit the batch.
        """
        pixels = (checked_one_batch(x).shape[-2], x.shape[-1])
        full_hw = self.patch_embed.out_hw_shape(pixels)
        shapes = get_img_shapes(x, img_shapes, self.mask_padding)
        x, mask = mask_images(x, shapes, self.patch_size)
        tokens, hw_shape = self._tokens_and_grid(x)
        outs = [pad_map(x, pixels)] if self.with_image else []
        for position in range(-1, min(self._last + 1, len(self.blocks))):
            tokens, hw_shape, mask = self._run_block_and_encodings(position, tokens, hw_shape, mask)
            full_hw = self.pos_encodings.out_hw_shape(full_hw, position)
            if self.out_indices is not None and position in self.out_indices:
                outs.append(self._padded_map_of_block(self._normed_tokens(tokens, position),
                                                      hw_shape, cells_of(mask), position, full_hw))
        if self.out_indices is not None:
            return tuple(outs)
        return (self._pooled_for_head(tokens, cells_of(mask)),)

    def _tokens_and_grid(self, x: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Embed images: their tokens with prefix tokens in front, and their grid."""
        tokens, hw_shape = self.patch_embed(x)
        prefix = [token.expand(tokens.shape[0], -1, -1) for token in self._prefix_parameters()]
        return torch.cat((*prefix, tokens), dim=1) if prefix else tokens, hw_shape

    def _num_prefix(self, block: int) -> int:
        """The number of tokens before the patches in a block; -1 stands for before the first block.
        """
        return self.num_prefix_tokens * (1 if block < 0 else self._copies)

    def _num_queries(self, block: int) -> int:
        """How many of these tokens are learned queries, which come first."""
        return 0

    def _run_block_and_encodings(self, index: int, tokens: Tensor, hw_shape: tuple[int, int],
                                 mask: MaskLike | None, attn_mask: Tensor | None = None
                                 ) -> tuple[Tensor, tuple[int, int], MaskLike | None]:
        """Run the block of this index (-1: none) and the encodings after it. ``attn_mask`` is that
        of :class:`MultiheadAttention`."""
        if index >= 0:
            tokens = self._run_block(index, tokens, hw_shape, mask, attn_mask)
        tokens, hw_shape, mask = self.pos_encodings(
            tokens, hw_shape, index, num_prefix_tokens=self._num_prefix(index),
            padding_mask=mask, num_queries=self._num_queries(index))
        if index < 0:
            tokens = self._with_prefix_for_each_window(self.norm_pre(tokens))
        return tokens, hw_shape, mask

    def _with_prefix_for_each_window(self, tokens: Tensor) -> Tensor:
        """Copy the prefix tokens to each window."""
        if self._copies == 1:
            return tokens
        prefix = tokens[:, :self.num_prefix_tokens].repeat(1, self._copies - 1, 1)
        return torch.cat((prefix, tokens), 1)

    def _with_prefixes_merged(self, tokens: Tensor) -> Tensor:
        """Replace the prefix tokens of all windows by their mean."""
        if self._copies == 1:
            return tokens
        count = self._copies * self.num_prefix_tokens
        prefix = tokens[:, :count].unflatten(1, (self._copies, self.num_prefix_tokens)).mean(1)
        return torch.cat((prefix, tokens[:, count:]), 1)

    @property
    def strides(self) -> tuple[Any, ...]:
        """Stride of each map in pixels; a pair where ``patch_size`` is one."""
        return (1,) * self.with_image + (self.patch_size,) * len(self.out_indices or ())

    def _normed_tokens(self, tokens: Tensor, index: int) -> Tensor:
        tokens = self._with_prefixes_merged(tokens)
        return tokens if self.norm is None or index not in self._normed else self.norm(tokens)

    def _padded_map_of_block(self, tokens: Tensor, hw_shape: tuple[int, int], mask: Tensor | None,
                             index: int, full_hw: tuple[int, int]) -> Any:
        """What is returned of a block: its map, on the grid of the whole batch."""
        # Made contiguous, which tokens behind prefix tokens are not.
        cells = tokens[:, self.num_prefix_tokens:].contiguous()
        out = tokens_to_map(cells, hw_shape)
        if self.neck is not None and index == len(self.blocks) - 1:
            out = self.neck(out, mask)
        return pad_map(out if mask is None else out.masked_fill(mask[:, None], 0), full_hw)

    def _pooled_for_head(self, tokens: Tensor, mask: Tensor | None) -> Tensor:
        tokens = self._with_prefixes_merged(tokens)
        if self.fc_norm is not None:
            return self.fc_norm(masked_mean(tokens[:, self.num_prefix_tokens:], mask))
        assert self.norm is not None
        if self.pool == 'gap':
            return masked_mean(self.norm(tokens[:, self.num_prefix_tokens:]), mask)
        normed = self.norm(tokens[:, :2])
        return normed[:, 0] if self.dist_token is None else normed.transpose(0, 1)

    def _prefix_parameters(self) -> list[nn.Parameter]:
        """The prefix tokens in their order."""
        tokens = (self.cls_token, self.dist_token, self.register_tokens)
        return [token for token in tokens if token is not None]

    def _run_block(self, index: int, tokens: Tensor, hw_shape: tuple[int, int],
                   mask: MaskLike | None, attn_mask: Tensor | None) -> Tensor:
        """Run block ``index``."""
        prefix = self._num_prefix(index)
        x_qk = self.pos_encodings.query_key_tokens(
            tokens, hw_shape, index - 1, num_prefix_tokens=prefix, padding_mask=mask,
            num_queries=self._num_queries(index))
        block = self.blocks[index]
        if isinstance(block, nn.Identity):  # A block that was taken out.
            return tokens
        # The mask and the windows are computed outside of compiled code. It would hold the extents
        # of images, and would take very long to compile divisions by a window.
        key_mask = None if mask is None else token_mask(mask, prefix)
        args = (tokens, hw_shape, key_mask, x_qk, block_windows(block, hw_shape), attn_mask)
        return run_block(block, *args, recompute=self.with_cp and self.training)

    def _freeze(self) -> None:
        # In distributed training, a trained parameter that is not used raises an error.
        for block in self.blocks[self._last + 1:]:
            block.requires_grad_(False)
        for position in range(self._last + 1, len(self.blocks)):
            for encoding in self.pos_encodings.encodings(position):
                encoding.requires_grad_(False)
        if self.frozen_stages < 0:
            return
        frozen: list[nn.Module] = [self.patch_embed, self.norm_pre,
                                   *self.blocks[:self.frozen_stages]]
        for position in range(-1, self.frozen_stages):
            frozen += self.pos_encodings.encodings(position)
        if self.frozen_stages > self._last:
            frozen += shared_encodings(self)
            frozen += [each for each in (self.norm, self.fc_norm, self.neck) if each is not None]
        freeze(self, frozen, self._prefix_parameters(), self.trainable)


#: The first name of this class, kept for configs.
DeiT = ViT
