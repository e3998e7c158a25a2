"""Arguments of the pyramids that are no errors in a library but here, and those of both."""
import mmposenc  # noqa: F401  (before OpenMMLab's packages)

# isort: split
import pytest
import torch

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
