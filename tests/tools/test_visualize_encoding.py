"""visualize_encoding.py on a small classifier."""
from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

CONFIG = """
model = dict(
    type='ImageClassifier', _scope_='mmpretrain',
    backbone=dict(type='mmposenc.DeiT', img_size=32, patch_size=8, embed_dims=16, num_layers=2,
                  num_heads=2, mlp_ratio=2, pool='cls',
                  rel_pos_encoding=dict(type='mmposenc.IRPE', rpe_on='k')),
    head=dict(type='LinearClsHead', num_classes=3, in_channels=16,
              loss=dict(type='CrossEntropyLoss')))
data_preprocessor = dict(num_classes=3, mean=[100., 110., 120.], std=[50., 50., 50.], to_rgb=True)
default_scope = 'mmpretrain'
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / 'tiny.py'
    path.write_text(CONFIG)
    return path


def test_figures_of_an_image(config, visualize, tmp_path, capsys):
    picture = tmp_path / 'photo.png'
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 50, 3), np.uint8)).save(picture)
    out = tmp_path / 'figures'
    visualize(config, '--image', picture, '--size', 32, 40, '--at', 0.1, 0.9, '--output-dir', out)
    names = {path.name for path in out.iterdir()}
    assert names == {'buckets_product_4x5.png', *(f'{kind}_blocks_{i}_attn.png' for i in (0, 1)
                                                  for kind in ('attention', 'logits'))}
    assert f'wrote 5 figures to {out}' in capsys.readouterr().out


def test_checkpoint_is_read_and_must_fit(config, visualize, tmp_path):
    from mmengine.config import Config
    from mmengine.registry import MODELS, init_default_scope
    cfg = Config.fromfile(config)
    init_default_scope('mmpretrain')
    model = MODELS.build(cfg.model)
    for table in model.backbone.parameters():
        torch.nn.init.constant_(table, 0.01)
    torch.save({'state_dict': model.state_dict()}, tmp_path / 'good.pth')
    visualize(config, tmp_path / 'good.pth', '--size', 32, 32, '--output-dir', tmp_path / 'out')
    state = model.state_dict()
    state.pop('head.fc.bias')
    torch.save({'state_dict': state}, tmp_path / 'bad.pth')
    with pytest.raises(SystemExit, match=r'bad.pth does not fit the model of the config'):
        visualize(config, tmp_path / 'bad.pth', '--output-dir', tmp_path / 'out')


@pytest.mark.parametrize('args,match', [
    (['--image', 'nowhere.jpg'], "no file 'nowhere.jpg'"),
    (['nowhere.pth'], "there is no checkpoint 'nowhere.pth'"),
    (['--at', '1', '0.5'], r'at=\(1.0, 0.5\) must be two fractions'),
    (['--size', '0', '32'], r'size=\(0, 32\) must be at least'),
])
def test_bad_input(config, visualize, tmp_path, args, match):
    with pytest.raises(SystemExit, match=match):
        visualize(config, *args, '--output-dir', tmp_path / 'out')
