"""Plain vision transformers under their names in mmseg and mmpretrain."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...backbones.layers import run_block
from ...backbones.vit import ViT
from ...config_types import ReadOnlyConfig
from ...encodings.absolute import LearnedPositionEmbedding
from ...encodings.base import RelativeEncoding, TokenEncoding
from ...encodings.rotary import RotaryEmbedding
from ...functional.grids import GridLike, as_grid, key_grid, pair
from ...functional.image_sizes import ImgShapes
from ...functional.masking import map_to_tokens, masked_mean
from ...functional.position_tables import sincos_2d
from . import (
    WEIGHTS,
    Change,
    DropIn,
    Table,
    Upstream,
    ignored,
    one_of,
    only,
    same,
    sizes_of,
    translate_norm,
    translate_weights,
)


def _sizes(upstream: Upstream) -> ReadOnlyConfig:
    """The sizes of mmpretrain's ``arch``; in mmseg they are arguments."""
    return sizes_of(upstream.args.get('arch', upstream.args), upstream) or {}


def _arch_sizes(value: str | ReadOnlyConfig, upstream: Upstream) -> ReadOnlyConfig:
    names = dict(embed_dims='embed_dims', num_layers='num_layers', num_heads='num_heads',
                 feedforward_channels='mlp_hidden_dims', global_attn_indexes='global_blocks')
    upstream_sizes = _sizes(upstream)
    sizes = {ours: upstream_sizes[name] for name, ours in names.items() if name in upstream_sizes}
    if not {*names.values()} - {'global_blocks'} <= set(sizes):
        raise ValueError(f'must be one of {sorted(upstream.kind.arch_zoo)}, or a dict of '
                         f'{", ".join(names)}')
    return sizes


def _blocks(value: int | Sequence[int], upstream: Upstream) -> ReadOnlyConfig:
    layers = _sizes(upstream)['num_layers']
    return {'out_indices': [index + layers if index < 0 else index
                            for index in ([value] if isinstance(value, int) else value)]}


def _patch_size(value: object, upstream: Upstream) -> ReadOnlyConfig:
    sides = value if isinstance(value, (list, tuple)) else (value, value)
    if len(sides) != 2 or not all(type(side) is int and side > 0 for side in sides):
        raise ValueError(f'with patch_size={value!r}, which must be a side in pixels, or two')
    return {'patch_size': value}


def _whole_patches(value: int | tuple[int, int], upstream: Upstream) -> ReadOnlyConfig:
    """Translate the image size: mmseg's tables have no cell for a patch that is not whole."""
    patches = pair(_patch_size(upstream.args['patch_size'], upstream)['patch_size'])
    return {'img_size': tuple(side // patch * patch
                              for side, patch in zip(pair(value), patches, strict=True))}


def _positions(value: str, upstream: Upstream) -> ReadOnlyConfig:
    """Translate the way in which the table of positions is resized."""
    if value not in ('bicubic', 'bilinear'):
        raise ValueError("must be 'bicubic' or 'bilinear'")
    if not upstream.args.get('use_abs_pos_emb', upstream.args.get('use_abs_pos', True)):
        return {}
    is_mae = upstream.kind.__name__ == 'MAEViT'
    kind = _FixedTable if is_mae else 'mmposenc.LearnedPositionEmbedding'
    return {'pos_encoding': dict(type=kind, interpolation=value)}


def _act(value: ReadOnlyConfig, upstream: Upstream) -> ReadOnlyConfig:
    acts = {'GELU': 'gelu', 'QuickGELU': 'quick_gelu', 'ReLU': 'relu'}
    name = getattr(value['type'], '__name__', value['type']).rpartition('.')[2]
    if name not in acts or len(value) > 1:
        raise ValueError(f'must have only a type, one of {", ".join(acts)}')
    return {'act': acts[name]}


def _ffn(value: str, upstream: Upstream) -> ReadOnlyConfig:
    if value not in ('origin', 'swiglu_fused'):
        raise ValueError(f"has ffn_type={value!r}, which must be 'origin' or 'swiglu_fused'")
    width = int(_sizes(upstream)['feedforward_channels'] * 2 / 3)
    return {} if value == 'origin' else {'mlp': 'swiglu', 'mlp_hidden_dims': (width + 7) // 8 * 8}


def _layer_cfgs(value: object, upstream: Upstream) -> ReadOnlyConfig:
    changes = {'act_cfg': _act, 'bias': _QKV_BIAS, 'qkv_bias': _QKV_BIAS, 'ffn_type': _ffn}
    if not isinstance(value, dict) or not set(value) <= set(changes):
        raise ValueError(f'must be a dict of all layers, which may have {", ".join(changes)}')
    return {key: each for name in value
            for key, each in changes[name](value[name], upstream).items()}


def _frozen(value: int, upstream: Upstream) -> ReadOnlyConfig:
    return {'frozen_stages': value if value > 0 else -1}


def _frozen_distilled(value: int, upstream: Upstream) -> ReadOnlyConfig:
    """Translate frozen stages of DeiT, whose token of distillation is trained."""
    return {**_frozen(value, upstream), 'trainable': ('dist_token',) if value > 0 else ()}


def _trained(value: Sequence[str], upstream: Upstream) -> ReadOnlyConfig:
    names = dict(pos_embed='pos_encodings', cls_token='cls_token', patch_embed='patch_embed')
    if value != ['all'] and not set(value) <= set(names):
        raise ValueError(f"must be ['all'], or some of {list(names)}")
    return {} if value == ['all'] else {'frozen_stages': upstream.args['num_layers'],
                                        'trainable': [names[name] for name in value]}


def _init_cfg(value: str | ReadOnlyConfig | None, upstream: Upstream) -> ReadOnlyConfig:
    """Translate the ``init_cfg`` of SAN, which takes the image encoder out of a file, and of that
    the first blocks."""
    if not isinstance(value, dict) or value.get('type') != 'Pretrained_Part':
        return translate_weights(value, upstream)
    return {'init_cfg': dict(type='Pretrained', checkpoint=value['checkpoint'],
                             prefix='image_encoder.', strict=False)}


def _mlp_paths(value: float, upstream: Upstream) -> ReadOnlyConfig:
    """Translate stochastic depth: mmseg's class never drops the branch of attention."""
    return {'drop_path_rate': value, 'drops': (0, 1)}


def _unless_zero(name: str) -> Change:
    return lambda value, upstream: {name: value or None}


_BIASES = dict(type='mmposenc.RelativePositionBias', resize='geometric')
_QKV_BIAS = one_of({each: {'qkv_bias': each} for each in (True, False)},
                   qv_bias={'qkv_bias': 'qv'})
_OUT_TYPES = one_of({}, **{each: {'out_type': each}
                           for each in ('raw', 'cls_token', 'featmap', 'avg_featmap')})
_COMMON: Table = {
    **same('in_channels', 'drop_path_rate'), 'patch_size': _patch_size, 'out_indices': _blocks,
    'norm_cfg': translate_norm, 'init_cfg': _init_cfg}
_MMSEG: Table = {
    **_COMMON, **same('embed_dims', 'num_layers', 'num_heads', 'mlp_ratio', 'attn_drop_rate',
                      'final_norm'),
    'img_size': _whole_patches, 'act_cfg': _act, 'patch_norm': only(False), 'num_fcs': only(2),
    # norm_eval concerns batch norms, which this network does not have.
    'pretrained': WEIGHTS['pretrained'], 'norm_eval': ignored}
_MMSEG_BEIT: Table = {
    **_MMSEG, 'init_values': 'layer_scale_init_value',
    'attn_drop_rate': ignored}  # It is lost on its way to attention there.
_MMSEG_VIT: Table = {
    **_MMSEG, **same('drop_rate', 'with_cp', 'patch_bias', 'pre_norm', 'out_origin'),
    'drop_path_rate': _mlp_paths, 'qkv_bias': only(True),
    'patch_pad': one_of({0: {'ceil_mode': False}}, corner={}),
    'with_cls_token': 'class_token', 'output_cls_token': one_of({
        True: {'out_type': 'pairs'}, False: {}}),
    'interpolate_mode': _positions, 'frozen_exclude': _trained}
_MMPRETRAIN: Table = {
    'arch': _arch_sizes, **_COMMON, **same('img_size', 'drop_rate'), 'out_type': _OUT_TYPES,
    'qkv_bias': _QKV_BIAS, 'frozen_stages': _frozen, 'interpolate_mode': _positions,
    'patch_cfg': only({}), 'layer_cfgs': _layer_cfgs}
_MMPRETRAIN_VIT: Table = {
    **_MMPRETRAIN, **same('final_norm', 'pre_norm'), 'with_cls_token': 'class_token',
    'layer_scale_init_value': _unless_zero('layer_scale_init_value')}


class _Outputs(ViT):
    """A plain vision transformer that returns what upstream's do.

    Args:
        out_type: what each block of ``out_indices`` gives. 'featmap': maps; 'raw': all tokens
            (B, L, C); 'cls_token': (B, C), with a distillation token two of them; 'avg_featmap':
            the norm of the mean of the patches (B, C); 'pairs': maps, each with the class token.
        mask_ratio: share of the patches that MAE's pretraining drops.
        drops: how often the branches of attention and of the MLP are dropped.
        out_origin: also return the tokens before the first block.
    """

    def __init__(self, arch: str | None = None, *, out_type: str = 'featmap',
                 out_origin: bool = False, drops: tuple[int, int] = (1, 1),
                 mask_ratio: float = 0.75, **ours: Any) -> None:
        super().__init__(arch, **ours)
        if out_type in ('cls_token', 'pairs') and self.cls_token is None:
            raise ValueError('with_cls_token=False, but the class token is returned')
        self.out_type, self.mask_ratio = out_type, mask_ratio
        self.out_indices = (*[-1] * out_origin, *self.out_indices)
        if out_type == 'avg_featmap':
            norm = self.blocks[0].norm1
            self.fc_norm = nn.LayerNorm(norm.normalized_shape, eps=norm.eps)
            self._freeze()
        for block in self.blocks:
            for layer, times in zip((block.drop_path, block.mlp_drop_path), drops, strict=True):
                layer.drop_prob = 1 - (1 - layer.drop_prob) ** times

    def _padded_map_of_block(self, tokens: Tensor, hw_shape: tuple[int, int], mask: Tensor | None,
                             index: int, full_hw: tuple[int, int]) -> Any:
        count = self.num_prefix_tokens
        if self.out_type == 'cls_token':
            return tokens[:, 0] if self.dist_token is None else (tokens[:, 0], tokens[:, 1])
        if self.out_type == 'avg_featmap':
            return self.fc_norm(masked_mean(tokens[:, count:], mask))
        out = super()._padded_map_of_block(tokens, hw_shape, mask, index, full_hw)
        if self.out_type == 'raw':
            return torch.cat((tokens[:, :count], map_to_tokens(out)), 1)
        return [out, tokens[:, 0]] if self.out_type == 'pairs' else out


class VisionTransformer(DropIn, _Outputs):
    """ViT or DeiT with the arguments of mmseg's or mmpretrain's class of this name, and those of
    :class:`~mmposenc.backbones.ViT`."""

    libraries = {'mmseg': _MMSEG_VIT, 'mmpretrain': _MMPRETRAIN_VIT}
    always = {'pool': None}


class DistilledVisionTransformer(DropIn, _Outputs):
    """DeiT with a distillation token, with the arguments of mmpretrain's class of this name."""

    libraries = {'mmpretrain': {**_MMPRETRAIN_VIT, 'with_cls_token': only(True),
                                'pre_norm': only(False), 'frozen_stages': _frozen_distilled}}
    always = {'distilled': True}


class BEiT(DropIn, _Outputs):
    """BEiT with the arguments of mmseg's class of this name, and those of
    :class:`~mmposenc.backbones.ViT`."""

    libraries = {'mmseg': {**_MMSEG_BEIT, 'qv_bias': one_of({
        True: {'qkv_bias': 'qv'}, False: {'qkv_bias': False}})}}
    always = {'pool': None, 'class_token': True, 'ceil_mode': False, 'rel_pos_encoding': _BIASES}


class MAE(DropIn, _Outputs):
    """MAE with the arguments of mmseg's class of this name, and those of
    :class:`~mmposenc.backbones.ViT`."""

    libraries = {'mmseg': _MMSEG_BEIT}
    always = {**BEiT.always, 'pos_encoding': dict(type='mmposenc.LearnedPositionEmbedding')}


class BEiTViT(DropIn, _Outputs):
    """BEiT with the arguments of mmpretrain's class of this name, and those of
    :class:`~mmposenc.backbones.ViT`."""

    libraries = {'mmpretrain': {
        # It is read together with interpolate_mode.
        'bias': _QKV_BIAS, **_MMPRETRAIN_VIT, 'use_abs_pos_emb': ignored,
        'use_rel_pos_bias': one_of({True: {'rel_pos_encoding': _BIASES}, False: {}}),
        'use_shared_rel_pos_bias': one_of({
            True: {'rel_pos_encoding': _BIASES, 'rel_pos_sharing': 'all'}, False: {}}),
        'drop_rate': only(0)}}  # There it is the dropout of the MLP alone.
    always = {'pool': None, 'drops': (1, 2)}


class _MMPretrainRotary(RotaryEmbedding):
    """The positions of mmpretrain's ViTEVA02. Along an axis the angles of the first half of the
    channels are those of the second half too, as for planes in halves, but each channel is turned
    with its neighbour: the two of a pair by different angles. EVA-02's release turns both by one.
    """

    def __init__(self, head_dims: int, num_heads: int, *, num_prefix_tokens: int = 0) -> None:
        super().__init__(head_dims, num_heads, num_prefix_tokens=num_prefix_tokens, axes='yx',
                         theta=10000.0, reference_grid=(head_dims // 2, head_dims // 2))

    def rotate(self, q: Tensor, k: Tensor, q_grid: GridLike, k_grid: GridLike | None = None
               ) -> tuple[Tensor, Tensor]:
        """Rotate queries and keys (B, heads, L, head_dims)."""
        query, like = as_grid(q_grid, 'q_grid'), q.new_empty(0, dtype=torch.float32)

        def turned(x: Tensor, grid: Any) -> Tensor:
            angles = self.angles(grid, query, like)
            angles = angles.unflatten(-1, (2, -1)).repeat(1, 1, 1, 2).flatten(-2)
            even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
            other = torch.stack((-odd, even), -1).flatten(-2)
            return (x * angles.cos() + other * angles.sin()).to(x.dtype)
        return turned(q, query), turned(k, key_grid(q_grid, k_grid))


class _FixedTable(LearnedPositionEmbedding):
    """MAE's table of sines and cosines, which is saved and not trained."""

    def reset_parameters(self) -> None:
        """Fill the table with sines and cosines, those of rows first, and zeros for the class
        token."""
        table, (height, width) = self.pos_embed.requires_grad_(False), self.sides
        cells = sincos_2d((width, height), table.shape[-1], device=table.device)
        table[:, :self.num_prefix_embeds] = 0
        table[:, self.num_prefix_embeds:] = cells.unflatten(1, (width, height)).transpose(
            1, 2).flatten(1, 2)


class MAEViT(DropIn, _Outputs):
    """MAE's encoder with the arguments of mmpretrain's class of this name, and those of
    :class:`~mmposenc.backbones.ViT`. In pretraining it takes encodings before the first block:
    others read the grid of all patches, of which most are dropped."""

    libraries = {'mmpretrain': {**_MMPRETRAIN_VIT, 'mask_ratio': 'mask_ratio'}}
    always = {'pool': None, 'class_token': True}

    def forward(self, x: Tensor, mask: bool | None = True,  # type: ignore[override]
                img_shapes: ImgShapes | None = None) -> Any:
        """Features of all patches with a ``mask`` of None or False; else those of random ones after
        the class token, (B, L, C), which cells were dropped, (B, H * W), and for each cell its
        place among the shuffled.

        Raises:
            ValueError: ``mask`` with an encoding that reads the whole grid.
        """
        if not mask:
            return super().forward(x, img_shapes)
        first = self.pos_encodings.encodings(-1)
        for encoding in self.modules():
            if isinstance(encoding, (RelativeEncoding, TokenEncoding)) and (
                    encoding not in first or getattr(encoding, 'apply_to', '') == 'qk'):
                raise ValueError(f'{type(encoding).__name__} with mask=True: it reads the grid of '
                                 'all patches, of which pretraining drops most; give only '
                                 'pos_encoding before the first block')
        tokens, _, _ = self._run_block_and_encodings(-1, *self._tokens_and_grid(x), None)
        cells = tokens[:, 1:]
        order = torch.rand(cells.shape[:2], device=x.device).argsort(1)
        places, count = order.argsort(1), int(cells.shape[1] * (1 - self.mask_ratio))
        rows = order[:, :count, None].expand(-1, -1, cells.shape[2])
        tokens = torch.cat((tokens[:, :1], cells.gather(1, rows)), 1)
        for block in self.blocks:
            tokens = run_block(block, tokens, (1, count), recompute=self.with_cp and self.training)
        return self._normed_tokens(tokens, len(self.blocks) - 1), (places >= count).float(), places


class ViTEVA02(DropIn, _Outputs):
    """EVA-02 with the arguments of mmpretrain's class of this name, and those of
    :class:`~mmposenc.backbones.ViT`. It has mmpretrain's results; those of the release are of
    ``rel_pos_encoding=dict(type='mmposenc.RotaryEmbedding', axes='yx', theta=10000.0,
    reference_grid=(16, 16))``."""

    libraries = {'mmpretrain': {
        **_MMPRETRAIN_VIT, **same('attn_drop_rate'), 'sub_ln': 'mlp_norm',
        # There they are the dropout of other layers than here.
        'drop_rate': only(0), 'proj_drop_rate': only(0),
        'layer_cfgs': only({}), 'layer_scale_init_value': only(0)}}
    always = {'pool': None, 'mlp': 'swiglu', 'rel_pos_encoding': dict(type=_MMPretrainRotary)}


class ViTSAM(DropIn, _Outputs):
    """SAM's image encoder with the arguments of mmpretrain's class of this name, and those of
    :class:`~mmposenc.backbones.ViT`."""

    libraries = {'mmpretrain': {
        **_MMPRETRAIN, 'drop_rate': only(0),  # There it is the dropout of the MLP alone.
        'use_abs_pos': ignored,  # It is read together with interpolate_mode.
        'use_rel_pos': one_of({True: {'rel_pos_encoding': dict(type='mmposenc.DecomposedRPE')},
                               False: {}}),
        'window_size': _unless_zero('window_size'), 'out_channels': _unless_zero('neck_channels'),
        'out_type': one_of({}, raw={}, featmap={}, avg_featmap={'out_type': 'mean'})}}
    always = {'pool': None, 'final_norm': False, 'mask_window_padding': False, 'drops': (0, 1)}

    def counterpart(self) -> Any:
        """An object of mmpretrain's class, with ``pos_embed=None`` if it has no table, because its
        ``init_weights`` reads that name."""
        theirs = super().counterpart()
        if not hasattr(theirs, 'pos_embed'):
            theirs.pos_embed = None
        return theirs

    def _padded_map_of_block(self, tokens: Tensor, hw_shape: tuple[int, int], mask: Tensor | None,
                             index: int, full_hw: tuple[int, int]) -> Any:
        """Pass the maps of all blocks through the neck, as mmpretrain does."""
        mean = self.out_type == 'mean'
        out = super()._padded_map_of_block(tokens, hw_shape, mask, len(self.blocks) - 1,
                                          hw_shape if mean else full_hw)
        return masked_mean(map_to_tokens(out), mask) if mean else out
