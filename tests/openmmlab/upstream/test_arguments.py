"""Arguments of the libraries' classes in the drop-ins: meaning, what is refused, whose they are."""
import math

import mmposenc  # noqa: F401  (before OpenMMLab's packages)

# isort: split
import pytest
import torch
from helpers.tiny_backbones import randomize
from helpers.upstream_configs import SMALL, build, drop_in, theirs
from mmengine.config import Config
from mmengine.registry import DefaultScope

from mmposenc.encodings import IRPE, PEG
from mmposenc.encodings.base import RelativeEncoding, TokenEncoding
from mmposenc.engine.config.models import load_all_weights
from mmposenc.engine.variants.parsed import parse_config
from mmposenc.engine.variants.rows import encodings_as_they_stand

SWINS = [case for case in SMALL if 'Swin' in case[1]]


def kinds(model, contract):
    return {type(module) for module in model.modules() if isinstance(module, contract)}


@pytest.mark.parametrize('library, name', SMALL)
def test_a_configs_encodings_replace_the_librarys_and_the_other_slot_stays(library, name):
    plain = build(library, name)
    assert kinds(plain, (TokenEncoding, RelativeEncoding))
    other = build(library, name, pos_encoding=dict(type='mmposenc.PEG'),
                  rel_pos_encoding=dict(type='mmposenc.IRPE'))
    assert kinds(other, TokenEncoding) == {PEG} and kinds(other, RelativeEncoding) == {IRPE}
    for slot, replaced, stays in (('pos_encoding', TokenEncoding, RelativeEncoding),
                                  ('rel_pos_encoding', RelativeEncoding, TokenEncoding)):
        without = build(library, name, **{slot: None})
        assert not kinds(without, replaced) and kinds(without, stays) == kinds(plain, stays)


def kept(*layers):
    """The share of images that all of these layers keep in training."""
    return math.prod(1 - getattr(layer, 'drop_prob', 0) for layer in layers)


@pytest.mark.parametrize('library, name', [
    case for case in SMALL if case not in SWINS and not case[1].startswith(('Pyramid', 'Mix'))])
def test_branches_are_dropped_as_often_as_there(library, name):
    ours, upstream = (make(library, name, drop_path_rate=0.5) for make in (build, theirs))
    blocks = getattr(ours, 'blocks', None) or [
        block for stage in ours.stages for block in stage.blocks]
    layers = getattr(upstream, 'stages', None) or upstream.layers
    if not hasattr(layers[0], 'attn'):
        layers = [layer for stage in layers for layer in stage]
    for block, layer in zip(blocks, layers, strict=True):
        both = getattr(layer, 'drop_path', None)
        inner = getattr(layer.attn, 'out_drop', getattr(layer.attn, 'dropout_layer', None))
        mlp = getattr(getattr(layer, 'ffn', None), 'dropout_layer', None)
        assert kept(block.drop_path) == pytest.approx(kept(both, inner))
        assert kept(block.mlp_drop_path) == pytest.approx(kept(both, mlp))


def test_a_file_of_theirs_loads_as_init_cfg_and_as_a_models_weights(tmp_path):
    case, file = ('mmdet', 'SwinTransformer'), str(tmp_path / 'theirs.pth')
    upstream = randomize(theirs(*case))
    upstream.eval()
    torch.save({'state_dict': {f'backbone.{key}': value for key, value in
                               upstream.state_dict().items()}}, file)
    models = [build(*case, init_cfg=dict(type='Pretrained', checkpoint=file, prefix='backbone')),
              build(*case)]
    models[0].init_weights()
    load_all_weights(torch.nn.ModuleDict({'backbone': models[1]}), file)
    x = torch.randn(1, 3, 64, 64)
    for model in models:
        torch.testing.assert_close(model.eval()(x), upstream(x), rtol=1e-4, atol=1e-4)


def test_a_name_of_several_libraries_is_that_of_the_arguments_then_of_the_scope():
    frozen = {}
    for scope in ('mmdet', 'mmseg', 'mmpretrain', 'mmengine'):
        with DefaultScope.overwrite_default_scope(scope):
            frozen[scope] = [drop_in('SwinTransformer').translated(
                dict(frozen_stages=0, **options))['frozen_stages']
                for options in ({}, dict(arch='tiny'), dict(convert_weights=True))]
    # mmpretrain counts frozen stages from 0; arch is its argument, and mmdet has convert_weights.
    assert frozen == dict(mmdet=[0, 1, 0], mmseg=[0, 1, 0], mmpretrain=[1, 1, 0],
                          mmengine=[0, 1, 0])


@pytest.mark.parametrize('name, encoding', [('SwinTransformer', 'RelativePositionBias'),
                                            ('SwinTransformerV2', 'LogSpacedCPB')])
def test_compare_knows_the_encoding_of_its_own(name, encoding):
    cfg = Config(dict(default_scope='mmpretrain', model=dict(backbone=dict(
        type=f'mmposenc.{name}', **SMALL['mmpretrain', name]))))
    assert [each['type'] for each in encodings_as_they_stand(parse_config(cfg)).relative] == [
        f'mmposenc.{encoding}']


def test_arguments_of_this_project_stand_beside_theirs():
    model = build('mmdet', 'SwinTransformer', mask_padding=True, img_size=48,
                  rel_pos_encoding=dict(type='mmposenc.IRPE'), mask_window_padding=True)
    assert model.mask_padding and model.stages[0].blocks[1].attn.mask_window_padding
    assert kinds(model, RelativeEncoding) == {IRPE}


_SWIN, _PVT, _VIT = 'SwinTransformer', 'PyramidVisionTransformer', 'VisionTransformer'


@pytest.mark.parametrize('library, name, options, message', [
    ('mmdet', _SWIN, dict(qk_scale=3.0), 'qk_scale=3.0 must be None'),
    ('mmdet', _SWIN, dict(norm_cfg=dict(type='BN')),
     "norm_cfg={'type': 'BN'} must be dict(type='LN')"),
    ('mmdet', _SWIN, dict(act_cfg=dict(type='ReLU')),
     "act_cfg={'type': 'ReLU'} must be {'type': 'GELU'}"),
    ('mmdet', _SWIN, dict(pretrained='a.pth', init_cfg=dict(type='Pretrained')),
     "pretrained='a.pth' is another name of init_cfg"),
    ('mmdet', _SWIN, dict(qk_scales=3.0), "did you mean 'qk_scale'?"),
    ('mmdet', _SWIN, dict(norm_eval=True, qk_scale=None),
     "mmdet's takes no norm_eval; mmseg's takes no norm_eval; mmpretrain's takes no depths"),
    ('mmdet', _SWIN, dict(strides=(4, 2, 2, 1), depths=(2, 2, 2, 2)),
     'strides=(4, 2, 2, 1) must be (4, 2, 2, 2)'),
    ('mmpretrain', _SWIN, dict(drop_rate=0.1), 'drop_rate=0.1 must be 0'),
    ('mmpretrain', _SWIN, dict(stage_cfgs=dict(downsample_cfg=dict(stride=3))),
     'must be dict(block_cfgs=dict(window_size=...)), or empty'),
    ('mmpretrain', 'SwinTransformerV2', dict(arch='huge'), "arch='huge' must be one of ['t'"),
    ('mmdet', _PVT, dict(num_stages=3), 'num_stages=3 must be the length of num_layers'),
    ('mmdet', _PVT, dict(strides=[4, 2, 2, 1]), 'strides=[4, 2, 2, 1] must be patch_sizes='),
    ('mmdet', _PVT, dict(paddings=[1, 0, 0, 0]), 'paddings are (1, 0, 0, 0)'),
    ('mmdet', _PVT, dict(act_cfg=dict(type='ReLU')), "act_cfg={'type': 'ReLU'} must be"),
    ('mmseg', 'MixVisionTransformer', dict(patch_sizes=[4, 2, 2, 2]),
     'patch_sizes=(4, 2, 2, 2) with'),
    ('mmseg', 'PCPVT', dict(strides=[2, 2]), 'strides=[2, 2] must be patch_sizes=[4, 2'),
    ('mmseg', 'PCPVT', dict(drop_rate=0.1), 'drop_rate=0.1 must be 0'),
    ('mmpretrain', 'PCPVT', dict(arch='huge'), "arch='huge' must be one of ['s', 'small'"),
    ('mmpretrain', 'SVT', dict(arch=dict(SMALL['mmpretrain', 'SVT']['arch'], strides=[2, 2])),
     'with strides equal to patch_sizes'),
    *(('mmseg', _VIT, dict(patch_size=size), f'patch_size={size!r}, which must be a side in pixels')
      for size in ('8', (8, 8, 8), (8, 0), 8.0)),
    ('mmseg', _VIT, dict(patch_pad='same'), "patch_pad='same' must be 0"),
    ('mmseg', _VIT, dict(frozen_exclude=['ln_pre']), "['all'], or some of ['pos_embed'"),
    ('mmseg', _VIT, dict(act_cfg=dict(type='SiLU')), "act_cfg={'type': 'SiLU'} must have only"),
    ('mmseg', _VIT, dict(with_cls_token=False, output_cls_token=True), 'with_cls_token=False'),
    ('mmseg', 'BEiT', dict(patch_norm=True), 'patch_norm=True must be False'),
    ('mmpretrain', _VIT, dict(arch='tiny'), "arch='tiny' must be one of ['"),
    ('mmpretrain', _VIT, dict(layer_cfgs=[{}, {}]), 'layer_cfgs=[{}, {}] must be a dict of all'),
    ('mmpretrain', _VIT, dict(layer_cfgs=dict(ffn_type='moe')), "ffn_type='moe'"),
    ('mmpretrain', _VIT, dict(out_type='mean'), "out_type='mean' must be 'raw'"),
    ('mmpretrain', _VIT, dict(interpolate_mode='nearest'), "must be 'bicubic' or 'bilinear'"),
    ('mmpretrain', 'ViTEVA02', dict(proj_drop_rate=0.1), 'proj_drop_rate=0.1 must be 0'),
    ('mmpretrain', 'ViTSAM', dict(out_type='cls_token'), "out_type='cls_token' must be 'raw'")])
def test_what_is_refused_names_itself(library, name, options, message):
    with pytest.raises((ValueError, TypeError)) as raised:
        build(library, name, **options)
    assert message in str(raised.value)
