"""ConvNeXt against timm's: DINOv3's four, and files of every release by every door."""
from __future__ import annotations

import pytest
import timm
import torch
import torch.nn.functional as F
from helpers.published_weights import CONVNEXT, published
from helpers.tiny_backbones import randomize
from mmengine.registry import MODELS, DefaultScope

from mmposenc.backbones import PVT, load_pretrained
from mmposenc.checkpoint import convert

#: The class, and how other libraries' configs name mmpretrain's.
KINDS = 'mmposenc.ConvNeXt', 'mmpretrain.ConvNeXt'


@pytest.fixture(scope='module')
def theirs():
    return randomize(CONVNEXT()).eval()


def build(kind=KINDS[0], out_indices=(3,), channels=(8, 16, 24, 32), scope='mmdet', **options):
    with DefaultScope.overwrite_default_scope(scope):
        model = MODELS.build(dict(
            type=kind, arch=dict(depths=[1, 1, 1, 1], channels=list(channels)),
            out_indices=out_indices, **options))
        model.init_weights()
    model.eval()
    return model


@pytest.mark.parametrize('size', ['tiny', 'small', 'base', 'large'])
def test_dinov3s_four_fit(size):
    with torch.device('meta'):
        file = timm.create_model(f'convnext_{size}.dinov3_lvd1689m').state_dict()
    ours = MODELS.build(dict(type=KINDS[0], arch=size, out_indices=(3,))).state_dict()
    assert {f'backbone.{name}': value.shape for name, value in ours.items()} == {
        name: value.shape for name, value in convert(file, 'convnext').items()}


@pytest.mark.parametrize('options', [{}, dict(prefix='backbone.')])
@pytest.mark.parametrize('names', ['timm', 'convnext', 'convnext, dinov3 of hugging face'])
@pytest.mark.parametrize('kind', KINDS)
def test_features_are_timms(kind, names, options, theirs, tmp_path):
    state, file = theirs.state_dict(), tmp_path / 'file.pth'
    torch.save({'model': state if names == 'timm' else published(names, state)}, file)
    options = dict(init_cfg=dict(type='Pretrained', checkpoint=str(file), **options))
    x = torch.randn(2, 3, 64, 75)
    with torch.no_grad():
        pooled = theirs.forward_head(theirs.forward_features(x), pre_logits=True)
        raw, norm = theirs.forward_intermediates(x, intermediates_only=True), theirs.head.norm
        torch.testing.assert_close(build(kind, **options)(x)[0], pooled, rtol=0, atol=1e-5)
        maps = build(kind, (0, 3), gap_before_final_norm=False, scope='mmseg', **options)(x)
        for out, stage, weights in zip(maps, (raw[0], raw[3]), (
                (None, None), (norm.weight, norm.bias)), strict=True):
            expected = F.layer_norm(stage.movedim(1, -1), stage.shape[1:2], *weights, 1e-6)
            torch.testing.assert_close(out, expected.movedim(-1, 1), rtol=0, atol=1e-5)


def test_what_does_not_fit_and_a_whole_classifier(theirs, tmp_path, said):
    file = tmp_path / 'file.pth'
    pretrained = dict(type='Pretrained', checkpoint=str(file))
    torch.save(theirs.state_dict(), file)
    build(out_indices=(0, 1), init_cfg=pretrained)
    assert 'left out norm3.' in str(said)
    for options in (dict(channels=(8, 16, 24, 40)), dict(use_grn=True)):
        with pytest.raises(ValueError, match='(?s)file.pth does not fit.*(of another sh|missing)'):
            build(init_cfg=pretrained, **options)
        build(init_cfg=dict(pretrained, strict=False), **options)
    with pytest.raises(ValueError, match="weights of ConvNeXt: take type='mmposenc.ConvNeXt'"):
        load_pretrained(PVT('tiny'), file)
    with DefaultScope.overwrite_default_scope('mmpretrain'):
        classifier = MODELS.build(dict(
            type='ImageClassifier', head=dict(type='LinearClsHead', num_classes=5, in_channels=32),
            backbone=build(KINDS[1]))).eval()
    load_pretrained(classifier, file)
    x = torch.randn(1, 3, 64, 64)
    logits = classifier.head(classifier.backbone(x))
    torch.testing.assert_close(logits, theirs(x), rtol=0, atol=1e-5)
    torch.save({'other.weight': torch.zeros(2)}, file)
    for kind in KINDS:
        with pytest.raises(ValueError, match='file.pth'):
            build(kind, init_cfg=dict(pretrained, prefix='backbone.'))
