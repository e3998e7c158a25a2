"""PVT, SegFormer's MiT and Twins under their names in mmdet, mmseg and mmpretrain."""
from __future__ import annotations

from collections.abc import Sequence

from ...attention.spatial_reduction import SpatialReductionAttention
from ...backbones.pvt import PVT
from ...backbones.shared_arguments import SharedArguments
from ...config_types import ReadOnlyConfig
from . import (
    WEIGHTS,
    Change,
    DropIn,
    Table,
    Upstream,
    ignored,
    only,
    same,
    sizes_of,
    translate_norm,
)

_CONV_MLP = dict(type='mmposenc.ConvMLP')


def _check_num_stages(value: int, upstream: Upstream) -> ReadOnlyConfig:
    if value != len(upstream.args['num_layers']):
        raise ValueError('must be the length of num_layers')
    return {}


def _channels(value: int, upstream: Upstream) -> ReadOnlyConfig:
    """Translate channels: the libraries give those of a head, this project those of a stage."""
    return {'embed_dims': [value * heads for heads in upstream.args['num_heads']]}


def _translate_strides(value: Sequence[int], upstream: Upstream) -> ReadOnlyConfig:
    """Translate strides together with sides and paddings of patches, for which PVT v2 and MiT have
    no arguments."""
    strides, sides = tuple(value), tuple(upstream.args.get('patch_sizes', (7, 3, 3, 3)))
    paddings = tuple(upstream.args.get('paddings', [side // 2 for side in sides]))
    reach = tuple(stride - 1 for stride in strides)
    if sides == strides and not any(paddings):
        return {'patch_sizes': strides}
    if sides == tuple(2 * stride - 1 for stride in strides) and paddings == reach:
        return {'patch_sizes': strides, 'overlap': True}
    raise ValueError(f'must be patch_sizes={sides} with paddings 0, or overlap by patch_sizes of '
                     f'2 * stride - 1 with paddings of stride - 1; paddings are {paddings}')


def _encodings(value: bool, upstream: Upstream) -> ReadOnlyConfig:
    table = dict(type='mmposenc.LearnedPositionEmbedding', interpolation='bilinear')
    return {'pos_encoding': [*([table] if value else []),
                             *([_CONV_MLP] if upstream.args['use_conv_ffn'] else [])]}


def _bias(value: bool, upstream: Upstream) -> ReadOnlyConfig:
    """Translate the bias of attention: with mmcv's, all projections have one or none."""
    return {'qkv_bias': value, 'proj_bias': value}


def _norms(*names: str) -> Change:
    """Give these norms the epsilon of the config, and the other norms torch's."""
    others = dict.fromkeys(('norm_eps', 'sr_norm_eps', 'embed_norm_eps', 'stage_norm_eps'), 1e-5)

    def change(value: ReadOnlyConfig, upstream: Upstream) -> ReadOnlyConfig:
        return others | dict.fromkeys(names, translate_norm(value, upstream)['norm_eps'])
    return change


def _translate_stage_values(name: str) -> Change:
    """Translate a list with a value for each stage; further values are left out, as in mmseg's
    Twins."""
    return lambda value, upstream: {name: list(value)[:len(upstream.args['depths'])]}


def _out_indices(value: Sequence[int], upstream: Upstream) -> ReadOnlyConfig:
    return {'out_indices': [index for index in value if index < len(upstream.args['depths'])]}


def _same_strides(value: Sequence[int], upstream: Upstream) -> ReadOnlyConfig:
    if list(value) != list(upstream.args['patch_sizes']):
        raise ValueError(f"must be patch_sizes={upstream.args['patch_sizes']}")
    return {}


def _arch_sizes(value: str | ReadOnlyConfig, upstream: Upstream) -> ReadOnlyConfig:
    """The sizes of an arch of mmpretrain."""
    kind, sizes = upstream.kind, sizes_of(value, upstream)
    if sizes is None or set(sizes) != kind.essential_keys or sizes['strides'] != sizes[
            'patch_sizes']:
        raise ValueError(f'must be one of {list(kind.arch_zoo)}, or a dict of '
                         f'{sorted(kind.essential_keys)} with strides equal to patch_sizes')
    return {{'depths': 'num_layers'}.get(name, name): each for name, each in sizes.items()
            if name != 'strides'}


def _weights(value: ReadOnlyConfig | None, upstream: Upstream) -> ReadOnlyConfig:
    """Translate the ``init_cfg`` of mmdet's PVT, which has no type."""
    return {'init_cfg': {'type': 'Pretrained', **value}} if value else {}


_COMMON: Table = {**same('in_channels', 'attn_drop_rate', 'drop_path_rate'),
                  'init_cfg': WEIGHTS['init_cfg']}
_PYRAMID: Table = {
    **_COMMON, **WEIGHTS,
    **same('drop_rate', 'num_layers', 'num_heads', 'sr_ratios', 'out_indices'),
    'embed_dims': _channels, 'num_stages': _check_num_stages, 'strides': _translate_strides,
    'qkv_bias': _bias, 'act_cfg': only(dict(type='GELU')),
    'norm_cfg': _norms('norm_eps', 'sr_norm_eps', 'embed_norm_eps', 'stage_norm_eps')}
_MMDET: Table = {
    **_PYRAMID, 'pretrain_img_size': 'img_size', 'mlp_ratios': 'mlp_ratios', 'init_cfg': _weights,
    'convert_weights': ignored}  # Files of the release are recognised without it.
# These are read together with strides.
_CHECKED: Table = dict.fromkeys(('patch_sizes', 'paddings'), ignored)
_TWINS: Table = {
    **_COMMON, **WEIGHTS, **{name: _translate_stage_values(name) for name in (
        'embed_dims', 'patch_sizes', 'num_heads', 'mlp_ratios', 'sr_ratios')},
    'depths': 'num_layers', 'strides': _same_strides, 'out_indices': _out_indices,
    'drop_rate': only(0), 'qkv_bias': _bias, 'norm_after_stage': 'stage_norm',
    'norm_cfg': _norms('embed_norm_eps', 'stage_norm_eps')}
_TWINS_CLASSIFIER: Table = {
    **_COMMON, **same('out_indices', 'qkv_bias'), 'arch': _arch_sizes, 'drop_rate': only(0),
    'norm_after_stage': 'stage_norm',
    'norm_cfg': _norms('norm_eps', 'sr_norm_eps', 'stage_norm_eps')}


class PyramidVisionTransformer(DropIn, PVT):
    """PVT with the arguments of mmdet's class of this name, and those of
    :class:`~mmposenc.backbones.PVT`."""

    libraries = {'mmdet': {**_MMDET, **_CHECKED, 'use_abs_pos_embed': _encodings,
                           'use_conv_ffn': ignored,  # It is read together with use_abs_pos_embed.
                           'norm_after_stage': 'stage_norm'}}


class PyramidVisionTransformerV2(DropIn, PVT):
    """PVT v2 with the arguments of mmdet's class of this name, and those of
    :class:`~mmposenc.backbones.PVT`."""

    libraries = {'mmdet': _MMDET}
    always = {'stage_norm': True, 'pos_encoding': _CONV_MLP}


class MixVisionTransformer(DropIn, PVT):
    """SegFormer's MiT with the arguments of mmseg's class of this name, and those of
    :class:`~mmposenc.backbones.PVT`."""

    libraries = {'mmseg': {
        # These are read together with strides.
        **_PYRAMID, 'with_cp': 'with_cp', 'patch_sizes': ignored,
        'mlp_ratio': lambda value, upstream: {
            'mlp_ratios': [value] * len(upstream.args['num_layers'])}}}
    always = {'stage_norm': True, 'pos_encoding': _CONV_MLP}


class _Twins(PVT):
    def _init_and_freeze(self, shared: SharedArguments) -> None:
        """Double the drop of branches: the libraries drop them in a layer and again around it,
        except for attention in windows."""
        for block in (block for stage in self.stages for block in stage.blocks):
            twice = 1 - (1 - block.drop_path.drop_prob) ** 2
            block.mlp_drop_path.drop_prob = twice
            if isinstance(block.attn, SpatialReductionAttention):
                block.drop_path.drop_prob = twice
        super()._init_and_freeze(shared)


class PCPVT(DropIn, _Twins):
    """Twins-PCPVT with the arguments of mmseg's or mmpretrain's class of this name, and those of
    :class:`~mmposenc.backbones.PVT`."""

    libraries = {'mmseg': _TWINS, 'mmpretrain': _TWINS_CLASSIFIER}
    always = {'pad_patches': True, 'pos_encoding': dict(type='mmposenc.PEG')}


class SVT(DropIn, _Twins):
    """Twins-SVT with the arguments of mmseg's or mmpretrain's class of this name, and those of
    :class:`~mmposenc.backbones.PVT`."""

    libraries = {'mmseg': {**_TWINS, 'windiow_sizes': _translate_stage_values('window_sizes')},
                 'mmpretrain': _TWINS_CLASSIFIER}
    always = {**PCPVT.always, 'mask_window_padding': 'both'}
