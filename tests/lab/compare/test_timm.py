"""Models of timm: the backbone is timm's to the bit, and the command compares them on a folder."""
import os
import re
from pathlib import Path

import pytest
import timm
import torch
from helpers.hostile_pickle import Call
from helpers.tiny_studies import Here
from helpers.tiny_tasks import picture
from helpers.variants import check_fits

from mmposenc.commands import compare
from mmposenc.engine import load_config
from mmposenc.engine.config.models import build_backbone
from mmposenc.engine.variants.encodings import read_entries
from mmposenc.lab.compare.page.results import collect_results
from mmposenc.lab.compare.running import workers
from mmposenc.lab.compare.study.study import read_study
from mmposenc.openmmlab.timm_backbone import TimmBackbone

VIT = dict(embed_dim=32, depth=2, num_heads=2, patch_size=8)
SWIN = dict(embed_dim=16, depths=(2, 2), num_heads=(2, 4), window_size=4)
MODELS = {'vit_tiny_patch16_224': VIT, 'eva02_tiny_patch14_224': VIT,
          'swin_tiny_patch4_window7_224': SWIN, 'swinv2_tiny_window8_256': SWIN}
PEG = dict(type='mmposenc.PEG')
TABLE = dict(type='mmposenc.LearnedPositionEmbedding')
NONE = dict(pos_encoding=None, rel_pos_encoding=None)


def backbone(name, **kwargs):
    torch.manual_seed(0)
    return TimmBackbone(name, 32, options=MODELS[name], **kwargs).eval()


def own(name):
    torch.manual_seed(0)
    return timm.create_model(name, num_classes=0, img_size=32, **MODELS[name]).eval()


@pytest.mark.parametrize('name, kwargs', [
    *((name, {}) for name in MODELS),
    ('vit_tiny_patch16_224', dict(pos_encoding=TABLE)),
    ('swin_tiny_patch4_window7_224',
     dict(rel_pos_encoding=dict(type='mmposenc.RelativePositionBias', resize='geometric'))),
    ('swinv2_tiny_window8_256', dict(rel_pos_encoding=dict(type='mmposenc.LogSpacedCPB')))])
def test_with_its_own_encodings_the_features_are_timms_to_the_bit(name, kwargs):
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(backbone(name, **kwargs)(x)[0], own(name)(x), rtol=0, atol=0)


@pytest.mark.parametrize('name', MODELS)
def test_without_any_nothing_is_left_of_timms(name):
    """A ViT's patches of 8 pixels may change their places."""
    model = backbone(name, **NONE).double()
    tables = ('pos_embed', 'position_bias_table', 'cpb_mlp')
    assert not any(word in key for key in model.state_dict() for word in tables)
    x = torch.randn(1, 3, 32, 32, dtype=torch.float64)
    if 'swin' not in name:
        torch.testing.assert_close(model(x.roll(8, -1))[0], model(x)[0], rtol=0, atol=1e-12)


def test_weights_of_timm_are_read_and_new_encodings_stay(tmp_path):
    """As timm does, with its head and its table of another size."""
    name = 'vit_tiny_patch16_224'
    torch.manual_seed(1)
    trained = timm.create_model(name, img_size=64, num_classes=3, **VIT).eval()
    torch.save(trained.state_dict(), tmp_path / 'w.pth')
    init = dict(type='Pretrained', checkpoint=str(tmp_path / 'w.pth'))
    x = torch.randn(1, 3, 64, 64)
    model = backbone(name, pos_encoding=[TABLE, dict(PEG, zero_init=True)], init_cfg=init)
    model.init_weights()
    assert model.model.pos_embed.shape == (1, 17, 32)
    same = TimmBackbone(name, 64, pos_encoding=[TABLE, dict(PEG, zero_init=True)], options=VIT,
                        init_cfg=init).eval()
    same.init_weights()
    with torch.no_grad():
        torch.testing.assert_close(same(x)[0], trained.forward_head(
            trained.forward_features(x), pre_logits=True))
    without = backbone(name, **NONE, init_cfg=init)
    without.init_weights()
    assert torch.equal(without.model.cls_token, trained.cls_token)
    torch.save({'cls_token': trained.cls_token}, tmp_path / 'w.pth')
    with pytest.raises(ValueError, match='(?s)w.pth does not fit .* timm:vit_tiny_.* missing: '):
        backbone(name, init_cfg=init).init_weights()
    torch.save({'cls_token': Call(os.getenv, 'HOME')}, tmp_path / 'w.pth')
    with pytest.raises(ValueError, match='code that it holds would have to run'):
        backbone(name, init_cfg=init).init_weights()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for i in range(8):
        picture(tmp_path / 'mine' / ('train', 'val')[i // 2 % 2] / f'c{i % 2}' / f'{i}.png', i)
    return 'mine'


CONFIG = """_base_ = 'mmposenc::_base_/timm.py'
model = dict(backbone=dict(name={name!r}, img_size=32, options={options!r}),
             head=dict(in_channels=32))
pipeline = [dict(type='mmposenc.LoadImageFromFile'), dict(type='Resize', scale=(32, 32)),
            dict(type='PackInputs')]
train_dataloader = dict(num_workers=0, persistent_workers=False, dataset=dict(pipeline=pipeline))
val_dataloader = dict(num_workers=0, persistent_workers=False, dataset=dict(pipeline=pipeline))
test_dataloader = val_dataloader
"""


def config_of(name, options=None):
    Path('my.py').write_text(CONFIG.format(name=name, options=options))
    return 'my.py'


@pytest.mark.parametrize('name, message', [
    ('vit_smal_patch16_224', "timm has no model 'vit_smal_patch16_224'; did you mean 'vit_sm"),
    ('resnet50', 'timm:resnet50 takes no encodings')])
def test_what_cannot_be_is_said_before_work(folder, name, message, capsys):
    with pytest.raises(SystemExit) as ended:
        compare.main([config_of(name), '--data', folder, '--encodings', 'none', 'peg'])
    assert re.search(message, capsys.readouterr().err + str(ended.value))


@pytest.mark.parametrize('name', [
    'vit_tiny_patch16_224', pytest.param('swin_tiny_patch4_window7_224', marks=pytest.mark.slow)])
def test_the_command_trains_and_compares(folder, name, monkeypatch):
    monkeypatch.setattr(workers, 'workers_from_arguments', lambda args: Here(1))
    with pytest.raises(SystemExit) as ended:
        compare.main([config_of(name, MODELS[name]), '--data', folder, '--encodings', 'none',
                      'learned+peg', '--seeds', '1', '--sizes', '2', '--cfg-options',
                      'train_cfg.max_epochs=1'])
    assert not ended.value.code
    told = collect_results(read_study(Path('work_dirs/compare_my')))
    assert [(run['status'], len(run['tests']), run['note']) for run in told.runs] == [
        ('finished', 2, '')] * 2


def test_what_replaces_timms_encodings(folder):
    cfg = load_config(config_of('vit_tiny_patch16_224', VIT))
    found = {}
    for entry in read_entries(['none', 'irpe-k', 'learned', 'keep+peg', 'none+irpe-k']):
        model = build_backbone('mmpretrain', check_fits(cfg, entry, [1, 2]).model.backbone)
        keys = model.state_dict()
        found[entry.name] = ('model.pos_embed' in keys, any('rel_pos' in key for key in keys))
        said = 'pos_encoding: none in place of LearnedPositionEmbedding'
        assert model.replaced_encodings['pos_encoding'] == said * entry.name.startswith('none')
    assert found == {'none': (False, False), 'irpe-k': (True, True), 'learned': (True, False),
                     'keep+peg': (True, False), 'none+irpe-k': (False, True)}
