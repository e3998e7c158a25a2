"""DeiT, ViT and CPVT: the plain vision transformer with any position encoding."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from mmengine.model import BaseModule
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ..attention.conv_projection import ConvProjectionAttention
from ..attention.multihead import MultiheadAttention
from ..encodings.placement import EncodingConfigs, PlacedEncodings, Positions
from ..encodings.sharing import share_encodings, shared_encodings
from ..functional.masking import masked_mean, pad_map, tokens_to_map
from ..image_sizes import get_img_shapes, mask_images
from .checkpoints import PretrainedMixin
from .layer_depth import LayerDepths
from .layers import (
    MLP,
    DropPath,
    LayerScale,
    PatchEmbed,
    check_rates,
    init_transformer_weights,
    rising_rates,
)

#: embed_dims, num_layers, num_heads.
ARCHS = {'tiny': (192, 12, 3), 'small': (384, 12, 6), 'base': (768, 12, 12),
         'large': (1024, 24, 16)}


class DeiTBlock(nn.Module):
    """x + scale1 * attention(norm(x)), then x + scale2 * mlp(norm(x)).

    Args:
        embed_dims, num_heads, mlp_ratio: sizes.
        drop, drop_path: dropout rates of the outputs and of whole branches.
        norm_eps: epsilon of the two norms.
        layer_scale_init_value: what the two scales start from; None leaves them out.
        conv_projection: take :class:`~mmposenc.attention.ConvProjectionAttention`.
        attention: further arguments of :class:`~mmposenc.attention.MultiheadAttention`.
    """

    def __init__(self, embed_dims: int, num_heads: int, mlp_ratio: float, *, drop: float = 0.0,
                 drop_path: float = 0.0, norm_eps: float = 1e-6,
                 layer_scale_init_value: float | None = None, conv_projection: bool = False,
                 **attention: Any) -> None:
        super().__init__()

        def scale() -> nn.Module:
            return (nn.Identity() if layer_scale_init_value is None
                    else LayerScale(embed_dims, layer_scale_init_value))

        self.num_prefix_tokens = attention.get('num_prefix_tokens', 0)
        self.norm1 = nn.LayerNorm(embed_dims, eps=norm_eps)
        attention_type = ConvProjectionAttention if conv_projection else MultiheadAttention
        self.attn = attention_type(embed_dims, num_heads, proj_drop=drop, **attention)
        self.ls1 = scale()
        self.norm2 = nn.LayerNorm(embed_dims, eps=norm_eps)
        self.mlp = MLP(embed_dims, int(embed_dims * mlp_ratio), drop)
        self.ls2 = scale()
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, hw_shape: tuple[int, int], padding_mask: Tensor | None = None,
                x_qk: Tensor | None = None) -> Tensor:
        """(B, L, C) -> (B, L, C); ``x_qk`` replaces ``x`` for queries and keys."""
        key_mask = None
        if padding_mask is not None:
            key_mask = nn.functional.pad(padding_mask.flatten(1), (self.num_prefix_tokens, 0))
        normed_qk = None if x_qk is None else self.norm1(x_qk)
        out = self.attn(self.norm1(x), hw_shape, key_mask, x_qk=normed_qk)
        x = x + self.drop_path(self.ls1(out))
        return x + self.drop_path(self.ls2(self.mlp(self.norm2(x))))


class DeiT(LayerDepths, PretrainedMixin, BaseModule):
    """Plain vision transformer (ViT, Dosovitskiy et al., ICLR 2021; DeiT, Touvron et al., ICML
    2021) with any position encoding (with :class:`~mmposenc.encodings.PEG` it is CPVT).

    Any image size works: the last row and column of patches are filled up with zeros.

    Args:
        arch: 'tiny', 'small', 'base' or 'large'; explicit sizes override it.
        img_size: image side or (H, W) that learned tables are made for.
        patch_size: side of a patch in pixels.
        in_channels: channels of the image.
        embed_dims, num_layers, num_heads, mlp_ratio: sizes.
        pool: 'cls' puts a class token before the patches and returns it, normed; 'gap' has none
            and returns the mean of the normed patches; None has none and returns maps.
        distilled: a second, distillation token behind the class token (DeiT, Sec. 4).
        out_indices: return maps of these blocks instead, whatever ``pool`` (which still says if
            there is a class token); later blocks are neither run nor trained. The last block's is
            normed if ``final_norm``. None: with ``pool=None`` the last block.
        final_norm: norm of the last block's output; needed with ``pool``.
        pos_encoding: a TokenEncoding config, several, or None.
            ``dict(type='mmposenc.LearnedPositionEmbedding')`` is DeiT's,
            ``dict(type='mmposenc.PEG')`` CPVT's.
        positions: where: -1 before the first block, i after block i; 'every': after all blocks but
            the last; None for each encoding's usual place.
        rel_pos_encoding: a RelativeEncoding config for every attention, or None.
        rel_pos_sharing: 'layer' gives each attention an encoding of its own; 'stage' and 'all', the
            same thing here, one to all blocks. (iRPE's "shared" is another: one table for the
            heads of an attention, ``shared_heads``.)
        conv_projection: blocks whose queries, keys and values come from 3x3 convolutions of the
            tokens (CvT); (0,) is the form CPVT compares itself with.
        qkv_bias: bias of queries, keys and values.
        layer_scale_init_value: start of the factors of CaiT and DeiT III; None leaves them out.
        drop_rate, attn_drop_rate, drop_path_rate: dropout of outputs, attention weights, and
            (rising over the blocks from 0) whole residual branches.
        form: how attention is computed, see :func:`mmposenc.attention.attend`.
        norm_eps: epsilon of the norms.
        frozen_stages: 0 freezes all that comes before the first block, n also the first n blocks;
            -1 trains all. An encoding they share with others is trained.
        with_cp: recompute blocks in the backward pass to save memory.
        mask_padding: keep batch padding out: an image in a padded batch gives what it gives alone;
            maps are zero on its padding. Needs to know the images' sizes, see
            :class:`~mmposenc.backbones.PVT`.
        init_cfg: ``dict(type='Pretrained', checkpoint=...)`` takes this project's files, DeiT's,
            iRPE's and timm's, and mmpretrain's VisionTransformer.

    Raises:
        ValueError: for sizes, positions, encodings, blocks or options that do not fit.
    """

    def __init__(self, arch: str | None = None, *,
                 img_size: int | tuple[int, int] = 224,
                 patch_size: int = 16,
                 in_channels: int = 3,
                 embed_dims: int | None = None,
                 num_layers: int | None = None,
                 num_heads: int | None = None,
                 mlp_ratio: float = 4.0,
                 pool: str | None = 'cls',
                 distilled: bool = False,
                 out_indices: Sequence[int] | None = None,
                 final_norm: bool = True,
                 pos_encoding: EncodingConfigs = None,
                 positions: Positions = None,
                 rel_pos_encoding: dict[str, Any] | None = None,
                 rel_pos_sharing: str = 'layer',
                 conv_projection: Sequence[int] = (),
                 qkv_bias: bool = True,
                 layer_scale_init_value: float | None = None,
                 drop_rate: float = 0.0,
                 attn_drop_rate: float = 0.0,
                 form: str = 'auto',
                 drop_path_rate: float = 0.0,
                 norm_eps: float = 1e-6,
                 frozen_stages: int = -1,
                 with_cp: bool = False,
                 mask_padding: bool = False,
                 init_cfg: dict[str, Any] | None = None) -> None:
        super().__init__(init_cfg=init_cfg)
        check_rates(drop_rate=drop_rate, attn_drop_rate=attn_drop_rate,
                    drop_path_rate=drop_path_rate)
        dims, layers, heads = _sizes(arch, embed_dims, num_layers, num_heads)
        _check(patch_size, mlp_ratio, pool, distilled, frozen_stages, layers)
        if out_indices is None and pool is None:
            out_indices = (layers - 1,)
        self.out_indices = _check_out_indices(out_indices, layers)
        if not all(0 <= block < layers for block in conv_projection):
            raise ValueError(f'conv_projection={tuple(conv_projection)} must be blocks from 0 to '
                             f'{layers - 1}')
        if self.out_indices is None and not final_norm:
            raise ValueError(f'final_norm=False with pool={pool!r}: what is pooled is normed; use '
                             f'out_indices for maps that are not')
        self.pool, self.patch_size = pool, patch_size
        self.frozen_stages, self.with_cp, self.mask_padding = frozen_stages, with_cp, mask_padding
        self.num_prefix_tokens = 0 if pool != 'cls' else 1 + distilled

        self.patch_embed = PatchEmbed(in_channels, dims, patch_size, norm_eps=None, ceil_mode=True)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dims)) if pool == 'cls' else None
        self.dist_token = nn.Parameter(torch.zeros(1, 1, dims)) if distilled else None
        side = (img_size, img_size) if isinstance(img_size, int) else tuple(img_size)
        grid = self.patch_embed.out_hw_shape(side)
        self.pos_encodings = PlacedEncodings(
            pos_encoding, positions, layers, embed_dims=dims, drop=drop_rate, grid_shape=grid,
            num_prefix_embeds=self.num_prefix_tokens)
        self.blocks = nn.ModuleList(DeiTBlock(
            dims, heads, mlp_ratio, drop=drop_rate, drop_path=rate, norm_eps=norm_eps,
            layer_scale_init_value=layer_scale_init_value, qkv_bias=qkv_bias,
            rel_pos_encoding=rel_pos_encoding, attn_drop=attn_drop_rate, form=form,
            num_prefix_tokens=self.num_prefix_tokens, grid_shape=grid,
            conv_projection=index in conv_projection)
            for index, rate in enumerate(rising_rates(drop_path_rate, layers)))
        share_encodings(rel_pos_sharing, self, [self.blocks])
        self._last = layers - 1 if self.out_indices is None else max(self.out_indices)
        has_norm = final_norm and self._last == layers - 1
        self.norm = nn.LayerNorm(dims, eps=norm_eps) if has_norm else None
        self.reset_parameters()
        self._freeze()

    def reset_parameters(self) -> None:
        """Initialise as DeiT: the patch projection as torch does, all else as
        :func:`init_transformer_weights`, tokens truncated normal of 0.02."""
        init_transformer_weights(self)
        self.patch_embed.projection.reset_parameters()
        for token in (self.cls_token, self.dist_token):
            if token is not None:
                nn.init.trunc_normal_(token, std=0.02)

    def forward(self, x: Tensor, img_shapes: Sequence[Sequence[int]] | None = None
                ) -> tuple[Any, ...]:
        """Extract features.

        Args:
            x: images (B, in_channels, H, W), padded to the right and below.
            img_shapes: height and width in pixels that each image fills, for ``mask_padding``;
                taken from the batch where a data preprocessor of this project made it.

        Returns:
            One (B, embed_dims); with ``distilled`` one pair of them, class token first, which is
            what mmpretrain's DeiTClsHead takes. With ``out_indices`` maps (B, embed_dims, H', W').

        Raises:
            ValueError: for sizes that do not fit the batch.
        """
        full_hw = self.patch_embed.out_hw_shape(x.shape[-2:])
        shapes = get_img_shapes(x, img_shapes, self.mask_padding)
        x, mask = mask_images(x, shapes, self.patch_size)
        tokens, hw_shape = self.patch_embed(x)
        prefix = [token.expand(len(tokens), -1, -1) for token in (self.cls_token, self.dist_token)
                  if token is not None]
        tokens = torch.cat((*prefix, tokens), dim=1) if prefix else tokens
        outs = []
        for position in range(-1, self._last + 1):
            if position >= 0:
                tokens = self._run(position, tokens, hw_shape, mask)
            tokens, hw_shape, mask = self.pos_encodings(
                tokens, hw_shape, position, num_prefix_tokens=self.num_prefix_tokens,
                padding_mask=mask)
            full_hw = self.pos_encodings.out_hw_shape(full_hw, position)
            if self.out_indices is not None and position in self.out_indices:
                outs.append(pad_map(self._map(tokens, hw_shape, mask, position), full_hw))
        return tuple(outs) if self.out_indices is not None else (self._pool(tokens, mask),)

    def _run(self, index: int, tokens: Tensor, hw_shape: tuple[int, int], mask: Tensor | None
             ) -> Tensor:
        """Block ``index``."""
        x_qk = self.pos_encodings.query_key_tokens(
            tokens, hw_shape, index - 1, num_prefix_tokens=self.num_prefix_tokens,
            padding_mask=mask)
        args = (tokens, hw_shape, mask, x_qk)
        if self.with_cp and self.training and torch.is_grad_enabled():
            return checkpoint(self.blocks[index], *args,  # type: ignore[no-any-return]
                              use_reentrant=False)
        return self.blocks[index](*args)  # type: ignore[no-any-return]

    def _map(self, tokens: Tensor, hw_shape: tuple[int, int], mask: Tensor | None, index: int
             ) -> Tensor:
        tokens = tokens[:, self.num_prefix_tokens:]
        if self.norm is not None and index == len(self.blocks) - 1:
            tokens = self.norm(tokens)
        # contiguous: without the prefix tokens the rest is no view of whole rows.
        out = tokens_to_map(tokens.contiguous(), hw_shape)
        return out if mask is None else out.masked_fill(mask[:, None], 0)

    def _pool(self, tokens: Tensor, mask: Tensor | None) -> Any:
        assert self.norm is not None
        if self.pool == 'gap':
            return masked_mean(self.norm(tokens), mask)
        normed = self.norm(tokens[:, :self.num_prefix_tokens])
        return normed[:, 0] if self.dist_token is None else (normed[:, 0], normed[:, 1])

    def _freeze(self) -> None:
        # Blocks that are never run would break distributed training if they were trained.
        for block in self.blocks[self._last + 1:]:
            block.requires_grad_(False)
        for position in range(self._last + 1, len(self.blocks)):
            for encoding in self.pos_encodings.encodings(position):
                encoding.requires_grad_(False)
        if self.frozen_stages < 0:
            return
        frozen: list[nn.Module] = [self.patch_embed, *self.blocks[:self.frozen_stages]]
        for position in range(-1, self.frozen_stages):
            frozen += self.pos_encodings.encodings(position)
        if self.frozen_stages > self._last:
            frozen += shared_encodings(self)
        for module in frozen:
            module.eval()
            module.requires_grad_(False)
        for token in (self.cls_token, self.dist_token):
            if token is not None:
                token.requires_grad_(False)

    def train(self, mode: bool = True) -> DeiT:
        """Set the mode; what is frozen stays in evaluation."""
        super().train(mode)
        self._freeze()
        return self


def _sizes(arch: str | None, embed_dims: int | None, num_layers: int | None,
           num_heads: int | None) -> tuple[int, int, int]:
    explicit = dict(embed_dims=embed_dims, num_layers=num_layers, num_heads=num_heads)
    if arch is not None and arch not in ARCHS:
        raise ValueError(f'arch={arch!r} must be one of {", ".join(map(repr, ARCHS))}, or None '
                         f'with embed_dims, num_layers and num_heads')
    missing = [name for name, size in explicit.items() if size is None]
    if arch is None and missing:
        raise ValueError(f'arch=None needs {", ".join(missing)}; or give arch, one of '
                         f'{", ".join(map(repr, ARCHS))}')
    known = ARCHS[arch] if arch is not None else (0, 0, 0)
    dims, layers, heads = (default if size is None else size
                           for size, default in zip(explicit.values(), known, strict=True))
    if layers < 1:
        raise ValueError(f'num_layers={layers} must be at least 1')
    return dims, layers, heads


def _check(patch_size: int, mlp_ratio: float, pool: str | None, distilled: bool,
           frozen_stages: int, num_layers: int) -> None:
    if patch_size < 1 or mlp_ratio <= 0:
        raise ValueError(f'patch_size={patch_size} must be at least 1 and mlp_ratio={mlp_ratio} '
                         f'positive')
    if pool not in (None, 'gap', 'cls'):
        raise ValueError(f"pool={pool!r} must be 'cls', 'gap' or None")
    if distilled and pool != 'cls':
        raise ValueError(f"distilled=True with pool={pool!r}: a distillation token stands beside a "
                         f"class token; use pool='cls'")
    if not -1 <= frozen_stages <= num_layers:
        raise ValueError(f'frozen_stages={frozen_stages} must be from -1 to {num_layers}')


def _check_out_indices(out_indices: Sequence[int] | None, num_layers: int
                       ) -> tuple[int, ...] | None:
    if out_indices is None:
        return None
    if not out_indices or not all(0 <= i < num_layers for i in out_indices):
        raise ValueError(f'out_indices={tuple(out_indices)} must be blocks from 0 to '
                         f'{num_layers - 1}')
    return tuple(sorted(set(out_indices)))
