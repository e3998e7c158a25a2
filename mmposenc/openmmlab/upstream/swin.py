"""Swin Transformers under their names in mmdet, mmseg and mmpretrain."""
from __future__ import annotations

from collections.abc import Sequence

from ...backbones.archs.swin import V2
from ...backbones.shared_arguments import SharedArguments
from ...backbones.swin import Swin
from ...config_types import ReadOnlyConfig
from . import WEIGHTS, DropIn, Table, Upstream, ignored, only, same, sizes_of, translate_norm


def _strides(value: Sequence[int], upstream: Upstream) -> ReadOnlyConfig:
    wanted = (upstream.args['patch_size'], *[2] * (len(upstream.args['depths']) - 1))
    if tuple(value) != wanted:
        raise ValueError(f'must be {wanted}: patch_size, and 2 for each further stage')
    return {}


def _arch_sizes(value: str | ReadOnlyConfig, upstream: Upstream) -> ReadOnlyConfig:
    zoo, sizes = upstream.kind.arch_zoo, sizes_of(value, upstream)
    if sizes is None or sizes.get('extra_norm_every_n_blocks'):
        known = [name for name in zoo if not zoo[name].get('extra_norm_every_n_blocks')]
        raise ValueError(f'must be one of {known}, or a dict of sizes without further norms')
    return {'embed_dims': sizes['embed_dims'], 'num_layers': sizes['depths'],
            'num_heads': sizes['num_heads']}


def _stage_cfgs(value: object, upstream: Upstream) -> ReadOnlyConfig:
    if not value:
        return {}
    block = value.get('block_cfgs') if isinstance(value, dict) and len(value) == 1 else None
    if not isinstance(block, dict) or set(block) != {'window_size'}:
        raise ValueError('must be dict(block_cfgs=dict(window_size=...)), or empty')
    return block


def _frozen(value: int, upstream: Upstream) -> ReadOnlyConfig:
    """Translate the number of frozen stages: mmpretrain counts them from 0, this project from 1."""
    return {'frozen_stages': value + 1} if value >= 0 else {}


def _frozen_v2(value: int, upstream: Upstream) -> ReadOnlyConfig:
    """Translate frozen stages of V2, where merging belongs to the stage after it and so is trained.
    """
    trained = 0 <= value < _num_stages(upstream) - 1
    return {**_frozen(value, upstream),
            'trainable': (f'stages.{value}.downsample',) if trained else ()}


def _windows(value: int | Sequence[int], upstream: Upstream) -> ReadOnlyConfig:
    """Translate the sides of windows: one for all stages, or one for each."""
    return {'window_size': value if isinstance(value, int) else [(side, side) for side in value]}


def _trained_windows(value: Sequence[int], upstream: Upstream) -> ReadOnlyConfig:
    """Translate the windows of pretraining; those of stages that do not exist are ignored there
    too."""
    return {'pretrained_window_size': [(side, side) for side in value[:_num_stages(upstream)]]}


def _num_stages(upstream: Upstream) -> int:
    return len(_arch_sizes(upstream.args['arch'], upstream)['num_layers'])


_COMMON: Table = {
    **same('in_channels', 'patch_size', 'out_indices', 'drop_path_rate', 'with_cp'),
    'use_abs_pos_embed': only(False), 'init_cfg': WEIGHTS['init_cfg']}
_DENSE: Table = {
    **_COMMON, **WEIGHTS,
    **same('embed_dims', 'window_size', 'mlp_ratio', 'num_heads', 'qkv_bias', 'drop_rate',
           'attn_drop_rate', 'frozen_stages'),
    'pretrain_img_size': 'img_size', 'depths': 'num_layers', 'strides': _strides,
    'qk_scale': only(None), 'patch_norm': only(True), 'act_cfg': only(dict(type='GELU')),
    # Files of the release are recognised without it.
    'norm_cfg': translate_norm, 'convert_weights': ignored}
_CLASSIFIER: Table = {
    **_COMMON, **same('img_size', 'pad_small_map'), 'arch': _arch_sizes,
    'window_size': _windows, 'stage_cfgs': _stage_cfgs, 'frozen_stages': _frozen,
    'drop_rate': only(0), 'norm_cfg': only(dict(type='LN')), 'patch_cfg': only({}),
    'interpolate_mode': ignored,  # It is read together with use_abs_pos_embed.
    'norm_eval': ignored}  # It concerns batch norms, which this network does not have.


class SwinTransformer(DropIn, Swin):
    """Swin Transformer with the arguments of mmdet's and mmseg's class of this name, or of
    mmpretrain's, and those of :class:`~mmposenc.backbones.Swin`."""

    libraries = {'mmdet': _DENSE, 'mmseg': _DENSE,
                 'mmpretrain': {**_CLASSIFIER, 'out_after_downsample': only(False)}}
    always = {'mask_window_padding': False}


class SwinTransformerV2(DropIn, Swin):
    """Swin Transformer V2 with the arguments of mmpretrain's class of this name, and those of
    :class:`~mmposenc.backbones.Swin`."""

    libraries = {'mmpretrain': {**_CLASSIFIER, 'pretrained_window_sizes': _trained_windows,
                                'frozen_stages': _frozen_v2}}
    always = {**V2, 'mask_window_padding': False}

    def _init_and_freeze(self, shared: SharedArguments) -> None:
        """Drop branches before their norms, as mmpretrain does; the release drops them after."""
        for block in (block for stage in self.stages for block in stage.blocks):
            block.drops_before_norm = True
        super()._init_and_freeze(shared)
