"""The encodings of a pretrained model: kept, dropped and added to."""
import pytest
import torch
from helpers import tiny_detr
from helpers.variants import applied, check_fits
from mmengine.config import Config, ConfigDict
from mmengine.registry import init_default_scope

from mmposenc import engine
from mmposenc.engine.config.models import build_model
from mmposenc.registry import MODELS

DEIT = 'mmposenc::classification/small/deit-micro-none_1xb32-40e_mnist5k.py'
VIT = dict(type='mmposenc.ViT', embed_dims=32, num_layers=2, num_heads=2, patch_size=8)
SWIN = dict(type='mmposenc.Swin', embed_dims=32, num_layers=(1, 1), num_heads=(1, 2),
            window_size=4, patch_size=2)


def pretrained(folder, backbone, **given):
    """A config on images of 32 pixels that begins with a model whose tables are not zero."""
    init_default_scope('mmpretrain')
    torch.manual_seed(0)
    model = MODELS.build(dict(backbone, **given))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=.5)
    torch.save(model.state_dict(), folder / 'w.pth')
    cfg = engine.load_config(DEIT)
    cfg.model.backbone = ConfigDict(**backbone, **given, init_cfg=dict(
        type='Pretrained', checkpoint=str(folder / 'w.pth')))
    return cfg


def made(cfg, word):
    """The backbone of an entry, as training begins with it."""
    model = MODELS.build(applied(cfg, word).model.backbone).eval()
    model.init_weights()
    return model


TABLE = dict(pos_encoding=dict(type='mmposenc.LearnedPositionEmbedding'))


@pytest.mark.parametrize('backbone, given, added', [
    (VIT, dict(**TABLE, img_size=64), ['keep', 'keep+peg', 'keep+irpe-k', 'keep+peg+irpe-k']),
    (VIT, dict(rel_pos_encoding=dict(type='mmposenc.RotaryEmbedding')), ['keep', 'keep+irpe-k']),
    (SWIN, {}, ['keep', 'keep+peg', 'keep+irpe-k'])])
def test_what_is_kept_gives_what_it_gave_and_what_is_added_begins_without_effect(
        tmp_path, backbone, given, added):
    cfg = pretrained(tmp_path, backbone, **given)
    plain = MODELS.build(cfg.model.backbone).eval()
    plain.init_weights()
    image = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        for word in added:
            model = made(cfg, word)
            assert len(model.state_dict()) > len(plain.state_dict()) or word == 'keep'
            torch.testing.assert_close(model(image)[0], plain(image)[0], rtol=1e-5, atol=1e-5)
        assert not torch.allclose(made(cfg, 'none')(image)[0], plain(image)[0])


def test_what_is_added_to_a_frozen_backbone_is_trained_and_what_is_kept_is_not(tmp_path):
    cfg = pretrained(tmp_path, VIT, **TABLE, img_size=64)
    cfg.model.backbone.frozen_stages = 2
    for word, trained in (('keep', ()), ('keep+irpe-k', ('rel_pos_encoding',)), ('none', ()),
                          ('peg+irpe-k', ('pos_encodings', 'rel_pos_encoding'))):
        assert applied(cfg, word).model.backbone.trainable == trained


def test_what_is_no_encoding_must_fit(tmp_path):
    cfg = pretrained(tmp_path, VIT, **TABLE, img_size=64)
    cfg.model.backbone.num_layers = 1
    with pytest.raises(ValueError, match='unexpected: .*blocks.1'):
        made(cfg, 'none')


def test_the_sines_of_a_detr_are_its_own():
    cfg = Config(dict(default_scope='mmdet', model=tiny_detr.detr(
        backbone=tiny_detr.resnet(out_indices=(3,)), channels=32)))
    kept, same = (build_model(applied(cfg, word)) for word in ('keep', 'sincos'))
    assert kept.encoder_pos == same.encoder_pos == 'sine'
    assert not any(same.replaced_encodings.values())
    both = check_fits(cfg, 'keep+irpe-k', size=(64, 64))
    assert 'pos_encoding' not in both.model.encoder


@pytest.mark.parametrize('word, changes, said', [
    ('keep+rotary', {}, 'zero_init=True: RotaryEmbedding has no weights'),
    ('keep+keep', {}, 'stands there twice'), ('keep+none', {}, "'none' takes away what 'keep'"),
    ('keep+peg', {'model.backbone.positions': [0]}, r'stand at positions=\[0\], and a sum'),
    ('keep+irpe-k', {'load_from': 'w.pth', 'model.backbone.rel_pos_encoding': dict(
        type='mmposenc.IRPE')}, 'name the file as Pretrained in model.backbone.init_cfg')])
def test_what_cannot_be_is_said(tmp_path, word, changes, said):
    cfg = pretrained(tmp_path, VIT, **TABLE, img_size=32)
    cfg.merge_from_dict(changes)
    with pytest.raises(ValueError, match=said):
        check_fits(cfg, word)
