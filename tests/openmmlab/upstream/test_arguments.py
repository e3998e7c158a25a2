"""Arguments of the libraries' classes in the drop-ins: meaning, what is refused, whose they are."""
import mmposenc  # noqa: F401  (before OpenMMLab's packages)

# isort: split
import pytest
import torch
from helpers.tiny_backbones import flat, randomize
from helpers.upstream_configs import drop_in, upstream
from mmengine.config import Config
from mmengine.registry import DefaultScope

from mmposenc.engine.config.models import load_weights
from mmposenc.engine.variants.parsed import parse
from mmposenc.engine.variants.rows import own_encodings

DENSE = dict(embed_dims=12, depths=(2, 2, 1), num_heads=(2, 3, 3), window_size=4, strides=(4, 2, 2),
             out_indices=(0, 2))
ARCH = dict(embed_dims=12, depths=[2, 2, 1], num_heads=[2, 3, 3])
CASES = {
    ('mmdet', 'SwinTransformer'): DENSE, ('mmseg', 'SwinTransformer'): DENSE,
    ('mmpretrain', 'SwinTransformer'): dict(arch=ARCH, img_size=64, window_size=4,
                                            out_indices=(0, 2)),
    ('mmpretrain', 'SwinTransformerV2'): dict(arch=dict(ARCH, extra_norm_every_n_blocks=0),
                                              img_size=64, window_size=[4, 4, 4],
                                              pretrained_window_sizes=[2, 2, 2],
                                              out_indices=(0, 2))}


def build(library, name, **options):
    with DefaultScope.overwrite_default_scope(library):
        return drop_in(name)(**CASES[library, name], **options)


@pytest.mark.parametrize('frozen', [-1, 0, 1, 2])
@pytest.mark.parametrize('library, name', CASES)
def test_as_much_is_frozen_as_there(library, name, frozen):
    theirs = upstream(library, name)(**CASES[library, name], frozen_stages=frozen)
    ours = build(library, name, frozen_stages=frozen)
    numbers = []
    for model in (theirs, ours):
        model.train()
        numbers.append(sorted(each.numel() for each in model.parameters() if each.requires_grad))
    assert numbers[0] == numbers[1]


@pytest.mark.parametrize('prefix', ['backbone.', ''])
@pytest.mark.parametrize('library, name', CASES)
def test_a_file_of_theirs_loads_as_init_cfg(library, name, prefix, tmp_path):
    theirs = randomize(upstream(library, name)(**CASES[library, name]))
    theirs.eval()
    file = str(tmp_path / 'theirs.pth')
    torch.save({'state_dict': {f'{prefix}{key}': value for key, value in
                               theirs.state_dict().items()}}, file)
    cfg = dict(type='Pretrained', checkpoint=file, **({'prefix': prefix} if prefix else {}))
    models = [build(library, name, init_cfg=cfg)]
    models[0].init_weights()
    if prefix:  # a model's whole file
        models.append(build(library, name))
        load_weights(torch.nn.ModuleDict({'backbone': models[1]}), file)
    x = torch.randn(1, 3, 64, 64)
    for model in models:
        for got, wanted in zip(flat(model.eval()(x)), flat(theirs(x)), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)


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


@pytest.mark.parametrize('name, own', [('SwinTransformer', 'RelativePositionBias'),
                                       ('SwinTransformerV2', 'LogSpacedCPB')])
def test_compare_knows_the_encoding_of_its_own(name, own):
    cfg = Config(dict(default_scope='mmpretrain', model=dict(backbone=dict(
        type=f'mmposenc.{name}', **CASES['mmpretrain', name]))))
    assert [each['type'] for each in own_encodings(parse(cfg)).relative] == [
        f'mmposenc.{own}']


def test_arguments_of_this_project_stand_beside_theirs():
    model = build('mmdet', 'SwinTransformer', mask_padding=True, img_size=48,
                  rel_pos_encoding=dict(type='mmposenc.IRPE'), mask_window_padding=True)
    assert model.mask_padding and model.stages[0].blocks[1].attn.mask_window_padding
    assert any(type(each).__name__ == 'IRPE' for each in model.modules())


@pytest.mark.parametrize('library, name, options, error, message', [
    ('mmdet', 'SwinTransformer', dict(qk_scale=3.0), ValueError, 'qk_scale=3.0 must be None'),
    ('mmdet', 'SwinTransformer', dict(norm_cfg=dict(type='BN')), ValueError,
     "norm_cfg={'type': 'BN'} must be dict(type='LN')"),
    ('mmdet', 'SwinTransformer', dict(act_cfg=dict(type='ReLU')), ValueError,
     "act_cfg={'type': 'ReLU'} must be {'type': 'GELU'}"),
    ('mmdet', 'SwinTransformer', dict(pretrained='a.pth', init_cfg=dict(type='Pretrained')),
     ValueError, "pretrained='a.pth' is another name of init_cfg"),
    ('mmdet', 'SwinTransformer', dict(qk_scales=3.0), TypeError, "did you mean 'qk_scale'?"),
    ('mmdet', 'SwinTransformer', dict(norm_eval=True, qk_scale=None), TypeError,
     "mmdet's takes no norm_eval; mmseg's takes no norm_eval; mmpretrain's takes no depths"),
    ('mmpretrain', 'SwinTransformer', dict(drop_rate=0.1), ValueError, 'drop_rate=0.1 must be 0'),
    ('mmpretrain', 'SwinTransformer', dict(stage_cfgs=dict(downsample_cfg=dict(stride=3))),
     ValueError, 'must be dict(block_cfgs=dict(window_size=...)), or empty'),
    ('mmpretrain', 'SwinTransformerV2', dict(patch_norm=True), TypeError, 'patch_norm'),
])
def test_what_is_refused_names_itself(library, name, options, error, message):
    with pytest.raises(error) as raised:
        build(library, name, **options)
    assert message in str(raised.value)


def test_other_strides_and_archs_are_refused():
    swin, v2 = drop_in('SwinTransformer'), drop_in('SwinTransformerV2')
    with pytest.raises(ValueError, match=r'strides=\(4, 2, 2, 1\) must be \(4, 2, 2, 2\)'):
        swin(strides=(4, 2, 2, 1))
    with pytest.raises(ValueError, match="arch='huge' must be one of .*'large'"):
        v2(arch='huge')
