"""visualize_encoding.py on a small classifier."""
from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from PIL import Image
from tinytasks import deit_config


@pytest.fixture
def config(tmp_path):
    return deit_config(tmp_path, img_size=32, num_layers=2, rel_pos_encoding=dict(
        type='mmposenc.IRPE', rpe_on='k'))


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


@pytest.mark.parametrize('suffix', [
    '.png', *(pytest.param(suffix, marks=pytest.mark.slow) for suffix in ('.svg', '.pdf'))])
def test_one_figure_and_its_numbers(config, visualize, tmp_path, capsys, suffix):
    out, arrays = tmp_path / 'new' / f'buckets{suffix}', tmp_path / 'numbers' / 'buckets.npz'
    visualize(config, '--figure', 'buckets', '--size', 32, 40, '--at', 0, 0, '--at', 0.9, 0.5,
              '--out', out, '--save-arrays', arrays)
    assert out.stat().st_size > 5000
    with np.load(arrays) as found:
        assert found['product'].shape == (2, 4, 5) and found['cells'].tolist() == [[0, 0], [3, 2]]
    assert f'wrote {out}, {arrays}' in capsys.readouterr().out


def test_models_side_by_side(config, visualize, tmp_path):
    """An untrained model is the same each time; a checkpoint changes what is drawn."""
    from mmengine.config import Config
    from mmengine.registry import MODELS, init_default_scope
    init_default_scope('mmpretrain')
    torch.manual_seed(7)  # An untrained model is drawn from seed 0.
    model = MODELS.build(Config.fromfile(config).model)
    torch.save({'state_dict': model.state_dict()}, tmp_path / 'some.pth')
    arrays = tmp_path / 'x.npz'
    visualize(config, '--figure', 'matrix', '--block', 1, '--size', 32, 32, '--out',
              tmp_path / 'x.svg', '--save-arrays', arrays, '--against', config,
              '--against', config, tmp_path / 'some.pth', '--title', 'No encoding')
    with np.load(arrays) as found:
        first, second, third = (found[f'weights_{i}'] for i in range(3))
    assert first.shape == (17, 17)
    np.testing.assert_array_equal(first, second)
    assert not np.allclose(first, third)
    text = (tmp_path / 'x.svg').read_text()
    titles = re.findall('>([^<>]*)</text>', text)
    assert {'No encoding, untrained (random weights)', 'ViT with iRPE',
            'ViT with iRPE, untrained (random weights)', 'block 1'} <= set(titles)
