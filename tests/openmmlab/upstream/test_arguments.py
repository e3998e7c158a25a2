"""Drop-ins for the libraries' classes: what arguments mean, what is refused, whose they are; files
of the releases, of the libraries and of classifiers."""
import math

import pytest
import torch
from helpers.golden_files import load_golden
from helpers.tiny_backbones import randomize
from helpers.upstream_configs import SMALL, build, drop_in, theirs
from mmengine.config import Config
from mmengine.registry import DefaultScope

from mmposenc.backbones import PVT, load_pretrained
from mmposenc.encodings import IRPE, PEG, LearnedPositionEmbedding
from mmposenc.encodings.base import RelativeEncoding, TokenEncoding
from mmposenc.engine.config.models import load_all_weights
from mmposenc.engine.config.parsed import ParsedConfig
from mmposenc.engine.variants.model_encodings import encodings_as_they_stand

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


def test_gated_mlps_have_the_librarys_width():
    arch = dict(SMALL['mmpretrain', 'VisionTransformer']['arch'], feedforward_channels=40)
    options = dict(arch=arch, layer_cfgs=dict(ffn_type='swiglu_fused'))
    counts = [sum(each.numel() for each in make('mmpretrain', 'VisionTransformer', **options)
                  .parameters()) for make in (build, theirs)]
    assert counts[0] == counts[1]


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
    assert [each['type'] for each in encodings_as_they_stand(ParsedConfig(cfg)).relative] == [
        f'mmposenc.{encoding}']


def test_arguments_of_this_project_stand_beside_theirs():
    model = build('mmdet', 'SwinTransformer', mask_padding=True, img_size=48,
                  rel_pos_encoding=dict(type='mmposenc.IRPE'), mask_window_padding=True)
    assert model.mask_padding and model.stages[0].blocks[1].attn.mask_window_padding
    assert kinds(model, RelativeEncoding) == {IRPE}


PVTS = 'mmdet', 'PyramidVisionTransformer'


def test_a_classifiers_last_norm_is_that_of_the_only_map_with_one():
    arch = SMALL['mmpretrain', 'SVT']['arch']
    sizes = {name: each for name, each in arch.items() if name not in ('strides', 'depths')}
    released = PVT(num_layers=arch['depths'], pool='gap', out_indices=(1,),
                   pos_encoding=dict(type='mmposenc.PEG'), **sizes)
    torch.nn.init.uniform_(released.norm.weight)
    model = build('mmpretrain', 'SVT', norm_after_stage=[False, True], out_indices=(1,),
                  qkv_bias=True)
    load_pretrained(model, released.state_dict())
    assert torch.equal(model.stages[1].norm.weight, released.norm.weight)


def test_a_releases_file_loads_as_in_mmdet(tmp_path):
    params, _ = load_golden('pvt_plain_21')
    for stage, side in enumerate((56, 28, 14, 7), start=1):
        rows = side ** 2 + (stage == 4)  # the class token's
        params[f'pos_embed{stage}'] = torch.randn(1, rows, 8 * stage)
    torch.save(params, tmp_path / 'release.pth')
    depths = [len({name.split('.')[1] for name in params if name.startswith(f'block{stage}.')})
              for stage in (1, 2, 3, 4)]
    models = [make(*PVTS, pretrain_img_size=224, num_layers=depths, mlp_ratios=[2, 2, 2, 2],
                   init_cfg=Config(dict(checkpoint=str(tmp_path / 'release.pth'))))
              for make in (build, theirs)]
    x = torch.randn(1, 3, 96, 160, dtype=torch.float64)
    for model in models:
        model.init_weights()
        model.double().eval()
    torch.testing.assert_close(*(model(x) for model in models), rtol=1e-5, atol=1e-5)


def test_the_librarys_file_loads_but_for_what_is_replaced():
    ours, upstream = build(*PVTS, pos_encoding=dict(type='mmposenc.PEG')), theirs(*PVTS)
    load_pretrained(ours, upstream.state_dict())
    assert torch.equal(ours.stages[2].blocks[0].mlp.fc1.weight,
                       upstream.layers[2][1][1].ffn.layers[0].weight.flatten(1))


def test_a_part_of_a_file_is_read_as_in_san():
    part = dict(type='Pretrained_Part', checkpoint='clip.pth')
    assert build('mmseg', 'VisionTransformer', init_cfg=part).init_cfg == dict(
        type='Pretrained', checkpoint='clip.pth', prefix='image_encoder.', strict=False)


def test_positions_of_masked_patches_start_as_those_of_mmpretrain():
    """And stay. (What it gives: test_configs.py.)"""
    fresh = theirs('mmpretrain', 'MAEViT')
    fresh.init_weights()
    table, = (each for each in build('mmpretrain', 'MAEViT').modules()
              if isinstance(each, LearnedPositionEmbedding))
    torch.testing.assert_close(table.pos_embed, fresh.pos_embed)
    assert not table.pos_embed.requires_grad


@pytest.mark.parametrize('slot, kind', [('pos_encoding', 'PEG'), ('rel_pos_encoding', 'IRPE')])
def test_masked_patches_refuse_encodings_of_the_whole_grid(slot, kind):
    model = build('mmpretrain', 'MAEViT', **{slot: dict(type=f'mmposenc.{kind}')})
    with pytest.raises(ValueError, match=f'{kind} with mask=True'):
        model(torch.zeros(1, 3, 40, 40))
    assert model(torch.zeros(1, 3, 40, 40), mask=None)[0].shape == (1, 26, 16)
