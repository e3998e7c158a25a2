"""Swin Transformers under their names in mmdet, mmseg and mmpretrain."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...backbones.swin import Swin
from . import WEIGHTS, DropIn, Table, Upstream, layer_norm, no_effect, only, same


def _strides(value: Any, upstream: Upstream) -> Mapping[str, Any]:
    wanted = (upstream.args['patch_size'], *[2] * (len(upstream.args['depths']) - 1))
    if tuple(value) != wanted:
        raise ValueError(f'must be {wanted}: patch_size, and 2 for each further stage')
    return {}


def _table(value: bool, upstream: Upstream) -> Mapping[str, Any]:
    return {'pos_encoding': dict(type='mmposenc.LearnedPositionEmbedding')} if value else {}


_DENSE: Table = {
    **same('in_channels', 'embed_dims', 'patch_size', 'window_size', 'mlp_ratio', 'num_heads',
           'out_indices', 'qkv_bias', 'drop_rate', 'attn_drop_rate', 'drop_path_rate', 'with_cp',
           'frozen_stages'),
    **WEIGHTS, 'pretrain_img_size': 'img_size', 'depths': 'num_layers', 'strides': _strides,
    'qk_scale': only(None), 'patch_norm': only(True), 'use_abs_pos_embed': _table,
    'act_cfg': only(dict(type='GELU')), 'norm_cfg': layer_norm,
    'convert_weights': no_effect}  # a release's file is recognised


class SwinTransformer(DropIn, Swin):
    """Swin Transformer with the arguments of mmdet's and mmseg's class of this name, or of
    mmpretrain's, and those of :class:`~mmposenc.backbones.Swin`."""

    libraries = {'mmdet': _DENSE, 'mmseg': _DENSE}
    always = {'mask_window_padding': False}
