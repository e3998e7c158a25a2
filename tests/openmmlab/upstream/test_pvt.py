"""Arguments of the pyramids that are no errors in a library but here, and those of both."""
import mmposenc  # noqa: F401  (before OpenMMLab's packages)

# isort: split
import math

import pytest
import torch
from helpers.golden_files import load_golden
from helpers.upstream_configs import upstream
from mmengine.config import Config
from mmengine.registry import DefaultScope

from mmposenc import encodings
from mmposenc.backbones import PVT, load_pretrained
from mmposenc.class_index import class_of_name

ARCH = dict(embed_dims=[8, 16], depths=[2, 2], num_heads=[1, 2], patch_sizes=[4, 2],
            strides=[4, 2], mlp_ratios=[2, 2], sr_ratios=[2, 1], window_sizes=[3, 5])
PYRAMID = dict(embed_dims=8, num_heads=[1, 2, 3, 4], num_layers=[2, 1, 1, 1])
SMALL = {
    'PyramidVisionTransformer': dict(PYRAMID, pretrain_img_size=64),
    'PyramidVisionTransformerV2': PYRAMID,
    'MixVisionTransformer': PYRAMID,
    'PCPVT': dict(arch={name: ARCH[name] for name in ARCH if name != 'window_sizes'},
                  out_indices=(0, 1)),
    'SVT': dict(arch=ARCH, out_indices=(0, 1)),
}
DEFAULTS = {'PyramidVisionTransformer': 'LearnedPositionEmbedding', 'PCPVT': 'PEG', 'SVT': 'PEG',
            'PyramidVisionTransformerV2': 'ConvMLP', 'MixVisionTransformer': 'ConvMLP'}


def kinds(name, **options):
    """The classes of the encodings in a drop-in."""
    model = class_of_name(name)(**SMALL[name], **options)
    return {type(each).__name__ for each in model.modules()
            if isinstance(each, encodings.TokenEncoding | encodings.RelativeEncoding)}


@pytest.mark.parametrize('name', SMALL)
def test_what_is_given_replaces_what_the_library_has_and_the_other_slot_stays(name):
    own = DEFAULTS[name]
    assert kinds(name) == {own}
    assert kinds(name, pos_encoding=dict(type='mmposenc.PEG', kernel_size=5)) == {'PEG'}
    assert kinds(name, pos_encoding=None) == set()
    relative = dict(type='mmposenc.RelativePositionBias')
    assert kinds(name, rel_pos_encoding=relative) == {own, 'RelativePositionBias'}


@pytest.mark.parametrize('name, options, message', [
    ('PyramidVisionTransformer', dict(num_stages=3), 'num_stages=3 must be the length of num_laye'),
    ('PyramidVisionTransformer', dict(strides=[4, 2, 2, 1]), r'strides=\[4, 2, 2, 1\] must be pat'),
    ('PyramidVisionTransformer', dict(paddings=[1, 0, 0, 0]), r'paddings are \(1, 0, 0, 0\)'),
    ('PyramidVisionTransformer', dict(act_cfg=dict(type='ReLU')), "act_cfg={'type': 'ReLU'} must"),
    ('PyramidVisionTransformerV2', dict(norm_cfg=dict(type='BN')), "norm_cfg={'type': 'BN'} must"),
    ('PyramidVisionTransformerV2', dict(strides=[2, 2, 2, 2]), r'strides=\[2, 2, 2, 2\] must be'),
    ('MixVisionTransformer', dict(patch_sizes=[4, 2, 2, 2]), r'patch_sizes=\(4, 2, 2, 2\) with'),
    ('PCPVT', dict(strides=[2, 2, 2, 2]), r'strides=\[2, 2, 2, 2\] must be patch_sizes=\[4, 2'),
    ('PCPVT', dict(arch='huge'), r"arch='huge' must be one of \['s', 'small'"),
    ('SVT', dict(arch=dict(ARCH, strides=[2, 2])), 'with strides equal to patch_sizes'),
    ('PCPVT', dict(drop_rate=0.1), 'drop_rate=0.1 must be 0'),
    ('SVT', dict(arch='small', norm_after_stage=[True]), r'stage_norm=\[True\] must have 4 values'),
])
def test_values_that_cannot_be_honoured(name, options, message):
    with pytest.raises(ValueError, match=message):
        class_of_name(name)(**options)


def test_an_arch_of_ours_is_not_an_argument_of_theirs():
    with pytest.raises(TypeError, match="mmseg's takes no arch"):
        class_of_name('MixVisionTransformer')(arch='mit-b0')


def test_a_classifiers_last_norm_is_that_of_the_only_map_with_one():
    sizes = {name: each for name, each in ARCH.items() if name not in ('strides', 'depths')}
    released = PVT(num_layers=ARCH['depths'], pool='gap', out_indices=(1,),
                   pos_encoding=dict(type='mmposenc.PEG'), **sizes)
    torch.nn.init.uniform_(released.norm.weight)
    model = class_of_name('SVT')(arch=ARCH, norm_after_stage=[False, True], out_indices=(1,),
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
    name, cfg = 'PyramidVisionTransformer', Config(dict(
        PYRAMID, num_layers=depths, mlp_ratios=[2, 2, 2, 2],
        init_cfg=dict(checkpoint=str(tmp_path / 'release.pth'))))
    models = [kind(**cfg) for kind in (class_of_name(name), upstream('mmdet', name))]
    x = torch.randn(1, 3, 96, 160, dtype=torch.float64)
    for model in models:
        model.init_weights()
        model.double().eval()
    for got, wanted in zip(*(model(x) for model in models), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('library', ['mmseg', 'mmpretrain'])
@pytest.mark.parametrize('name', ['PCPVT', 'SVT'])
def test_branches_are_dropped_as_often_as_there(library, name):
    sizes = dict(SMALL[name]['arch'])
    if library == 'mmseg':
        sizes.pop('window_sizes', None)
        options = dict(sizes, drop_path_rate=0.5)
        if name == 'SVT':
            options['windiow_sizes'] = [3, 5]
    else:
        options = dict(arch=sizes, drop_path_rate=0.5)
    with DefaultScope.overwrite_default_scope(library):
        ours, theirs = class_of_name(name)(**options, out_indices=(0, 1)), upstream(library, name)(
            **options)

    def kept(*layers):
        return math.prod(1 - getattr(layer, 'drop_prob', 0) for layer in layers)

    layers = getattr(theirs, 'stages', None) or theirs.layers
    for stage, their_blocks in zip(ours.stages, layers, strict=True):
        for block, layer in zip(stage.blocks, their_blocks, strict=True):
            inner = getattr(layer.attn, 'out_drop', getattr(layer.attn, 'dropout_layer', None))
            assert kept(block.drop_path) == pytest.approx(kept(layer.drop_path, inner))
            assert kept(block.mlp_drop_path) == pytest.approx(
                kept(layer.drop_path, layer.ffn.dropout_layer))


def test_the_librarys_file_loads_but_for_what_is_replaced():
    theirs = upstream('mmdet', 'PyramidVisionTransformer')(**SMALL['PyramidVisionTransformer'])
    ours = class_of_name('PyramidVisionTransformer')(
        **SMALL['PyramidVisionTransformer'], pos_encoding=dict(type='mmposenc.PEG'))
    load_pretrained(ours, theirs.state_dict())
    assert torch.equal(ours.stages[2].blocks[0].mlp.fc1.weight,
                       theirs.layers[2][1][1].ffn.layers[0].weight.flatten(1))
