"""Plain vision transformers under upstream's names: what a config adds, training and refusals."""
import math

import mmposenc  # noqa: F401  (before OpenMMLab's packages)

# isort: split
import pytest
import torch
from helpers.tiny_backbones import randomize
from helpers.upstream_configs import DROP_INS, drop_in, upstream
from mmengine.registry import DefaultScope

from mmposenc.backbones import load_pretrained
from mmposenc.encodings import IRPE, PEG, LearnedPositionEmbedding
from mmposenc.encodings.base import RelativeEncoding, TokenEncoding

ARCH = dict(embed_dims=16, num_layers=2, num_heads=2, feedforward_channels=24,
            global_attn_indexes=[1])
SMALL = {'mmseg': dict(img_size=40, patch_size=8, embed_dims=16, num_layers=2, num_heads=2),
         'mmpretrain': dict(img_size=40, patch_size=8, arch=ARCH)}
CLASSES = [(library, name) for name in sorted(DROP_INS) if DROP_INS[name].endswith('.vit')
           for library in drop_in(name).libraries]


def built(library, name, **options):
    with DefaultScope.overwrite_default_scope(library):
        return drop_in(name)(**SMALL[library], **options)


def kinds(model, contract):
    return {type(module) for module in model.modules() if isinstance(module, contract)}


@pytest.mark.parametrize('library, name', CLASSES)
def test_what_a_config_adds_takes_the_place_of_what_stands_there(library, name):
    plain = built(library, name)
    other = built(library, name, pos_encoding=dict(type='mmposenc.PEG'),
                  rel_pos_encoding=dict(type='mmposenc.IRPE'))
    assert kinds(other, TokenEncoding) == {PEG} and kinds(other, RelativeEncoding) == {IRPE}
    for slot, own in (('pos_encoding', RelativeEncoding), ('rel_pos_encoding', TokenEncoding)):
        without = built(library, name, **{slot: None})
        assert kinds(without, own) == kinds(plain, own)
        assert not kinds(without, {TokenEncoding: RelativeEncoding}.get(own, TokenEncoding))


@pytest.mark.parametrize('library, name', CLASSES)
def test_branches_are_dropped_as_often_as_there(library, name):
    with DefaultScope.overwrite_default_scope(library):
        theirs = upstream(library, name)(**SMALL[library], drop_path_rate=0.5)

    def kept(*layers):
        return math.prod(1 - getattr(layer, 'drop_prob', 0) for layer in layers)

    for block, layer in zip(built(library, name, drop_path_rate=0.5).blocks, theirs.layers,
                            strict=True):
        both = getattr(layer, 'drop_path', None)
        inner = getattr(layer.attn, 'out_drop', getattr(layer.attn, 'dropout_layer', None))
        mlp = getattr(getattr(layer, 'ffn', None), 'dropout_layer', None)
        assert kept(block.drop_path) == pytest.approx(kept(both, inner))
        assert kept(block.mlp_drop_path) == pytest.approx(kept(both, mlp))


@pytest.mark.parametrize('library, name, options, message', [
    ('mmseg', 'VisionTransformer', dict(patch_pad='same'), "patch_pad='same' must be 0"),
    ('mmseg', 'VisionTransformer', dict(frozen_exclude=['ln_pre']), "frozen_exclude=.*'pos_embed'"),
    ('mmseg', 'VisionTransformer', dict(act_cfg=dict(type='SiLU')), 'act_cfg=.*GELU, QuickGELU'),
    ('mmseg', 'VisionTransformer', dict(norm_cfg=dict(type='BN')), 'norm_cfg=.*LN'),
    ('mmseg', 'VisionTransformer', dict(with_cls_token=False, output_cls_token=True),
     'with_cls_token=False'),
    ('mmseg', 'BEiT', dict(patch_norm=True), 'patch_norm=True must be False'),
    ('mmpretrain', 'VisionTransformer', dict(arch='tiny'), "arch='tiny' must be one of .*'deit-t'"),
    ('mmpretrain', 'VisionTransformer', dict(layer_cfgs=[{}, {}]), 'layer_cfgs=.* dict of all'),
    ('mmpretrain', 'VisionTransformer', dict(layer_cfgs=dict(ffn_type='moe')), "ffn_type='moe'"),
    ('mmpretrain', 'VisionTransformer', dict(out_type='mean'), "out_type='mean' must be 'raw'"),
    ('mmpretrain', 'VisionTransformer', dict(interpolate_mode='nearest'), 'interpolate_mode=.*bil'),
    ('mmpretrain', 'ViTEVA02', dict(proj_drop_rate=0.1), 'proj_drop_rate=0.1 must be 0'),
    ('mmpretrain', 'ViTSAM', dict(out_type='cls_token'), "out_type='cls_token' must be 'raw'")])
def test_what_cannot_be_honoured_is_refused_by_name(library, name, options, message):
    with DefaultScope.overwrite_default_scope(library), pytest.raises(ValueError, match=message):
        drop_in(name)(**{**SMALL[library], **options})


def test_a_part_of_a_file_is_read_as_in_san():
    part = dict(type='Pretrained_Part', checkpoint='clip.pth')
    assert built('mmseg', 'VisionTransformer', init_cfg=part).init_cfg == dict(
        type='Pretrained', checkpoint='clip.pth', prefix='image_encoder.', strict=False)


def test_a_prefix_needs_no_dot():
    theirs = randomize(upstream('mmpretrain', 'VisionTransformer')(**SMALL['mmpretrain']))
    state = {f'backbone.{name}': value for name, value in theirs.state_dict().items()}
    ours = built('mmpretrain', 'VisionTransformer')
    load_pretrained(ours, state, prefix='backbone')
    torch.testing.assert_close(ours.cls_token, theirs.cls_token)


def test_masked_patches_are_those_of_mmpretrain():
    theirs = randomize(upstream('mmpretrain', 'MAEViT')(**SMALL['mmpretrain'], mask_ratio=0.6))
    ours = built('mmpretrain', 'MAEViT', mask_ratio=0.6)
    fresh = upstream('mmpretrain', 'MAEViT')(**SMALL['mmpretrain'])
    fresh.init_weights()
    table, = (each for each in ours.modules() if isinstance(each, LearnedPositionEmbedding))
    torch.testing.assert_close(table.pos_embed, fresh.pos_embed)
    assert not table.pos_embed.requires_grad
    load_pretrained(ours, theirs.state_dict())
    outs = []
    for model in (ours, theirs):
        torch.manual_seed(5)
        outs.append(model(torch.linspace(-2, 2, 2 * 3 * 40 * 40).view(2, 3, 40, 40)))
    torch.testing.assert_close(*outs, rtol=1e-5, atol=1e-5)
    assert outs[0][0].shape == (2, 11, 16) and outs[0][1].sum(1).tolist() == [15, 15]


@pytest.mark.parametrize('slot, kind', [('pos_encoding', 'PEG'), ('rel_pos_encoding', 'IRPE')])
def test_masked_patches_refuse_encodings_of_the_whole_grid(slot, kind):
    model = built('mmpretrain', 'MAEViT', **{slot: dict(type=f'mmposenc.{kind}')})
    with pytest.raises(ValueError, match=f'{kind} with mask=True'):
        model(torch.zeros(1, 3, 40, 40))
    assert model(torch.zeros(1, 3, 40, 40), mask=None)[0].shape == (1, 26, 16)


def test_a_list_of_images_gives_what_each_gives_alone():
    model = randomize(built('mmpretrain', 'VisionTransformer', out_type='avg_featmap',
                            out_indices=[0, 1])).eval()
    images = [torch.randn(3, *size, generator=torch.Generator().manual_seed(1))
              for size in ((24, 40), (40, 40), (24, 16))]
    for index, out in enumerate(model(images)):
        alone = torch.cat([model(image[None])[index] for image in images])
        torch.testing.assert_close(out, alone, rtol=1e-5, atol=1e-5)
    pairs = built('mmseg', 'VisionTransformer', output_cls_token=True)
    with pytest.raises(ValueError, match="x is a list of images with out_type='pairs'"):
        pairs(images)
