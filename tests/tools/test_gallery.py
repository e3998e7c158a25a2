"""mmposenc figures --gallery, sizes of figures, and the few figures of a report."""
from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.config import Config
from PIL import Image
from tinytasks import deit_config

from mmposenc.backbones import PVT, DeiT, Swin
from mmposenc.engine import load_config
from mmposenc.lab.figures.encoding_figures import cell_side, figures_of, input_size


@pytest.fixture
def config(tmp_path):
    return deit_config(tmp_path, img_size=(24, 32), num_layers=1, rel_pos_encoding=dict(
        type='mmposenc.RelativePositionBias', resize='geometric'))


@pytest.fixture
def photo(tmp_path):
    path = tmp_path / 'photo.png'
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (30, 90, 3), np.uint8)).save(path)
    return path


@pytest.fixture
def weights(config, tmp_path):
    from mmengine.registry import MODELS, init_default_scope
    init_default_scope('mmpretrain')
    model = MODELS.build(load_config(str(config)).model)
    torch.save({'state_dict': model.state_dict()}, tmp_path / 'some.pth')
    return tmp_path / 'some.pth'


@pytest.mark.slow
def test_a_page_of_two_models(config, photo, weights, visualize, tmp_path, capsys):
    folder, page = tmp_path / 'pictures', tmp_path / 'docs' / 'page.md'
    visualize(config, '--gallery', folder, '--page', page, '--image', photo, '--size', 24,
              '--at', 0.5, 0.9)
    names = {'bias_0.png', 'overlay_0.png', 'rollout_0.png', 'matrix_0.png'}
    assert {path.name for path in (folder / 'tiny').iterdir()} == {*names, 'figures.json'}
    assert f'wrote 5 figures to {folder}' in capsys.readouterr().out
    first = page.read_text()
    assert '## tiny\n' in first and '(../pictures/tiny/bias_0.png)' in first
    assert '24 x 72' in first  # the shorter side, and the photo's aspect
    (folder / 'tiny' / 'kernels_3.png').write_bytes(b'of an earlier call')
    visualize(config, weights, '--gallery', folder, '--page', page, '--name', 'a.trained')
    both = page.read_text()
    assert both.index('## a.trained') < both.index('## tiny')
    assert 'untrained, random weights' in both and 'weights `some.pth`' in both
    assert both.count(' every query (rows) ') == 1  # told once, for both models
    visualize(config, '--gallery', folder)
    assert not (folder / 'tiny' / 'kernels_3.png').exists()
    assert '(tiny/bias_0.png)' in (folder / 'gallery.md').read_text()
    with Image.open(folder / 'tiny' / 'bias_0.png') as image:
        assert image.size[0] == 1120 and image.mode == 'P'


@pytest.mark.slow
def test_few_figures_for_a_report(config, photo, weights, tmp_path):
    cfg = load_config(str(config))
    found = figures_of(cfg, str(weights), tmp_path / 'out', str(photo), size=(24, 32))
    assert [each['file'] for each in found] == [
        str(tmp_path / 'out' / f'{name}_0.png') for name in ('bias', 'overlay', 'rollout',
                                                             'matrix')]
    assert all(set(each) == {'title', 'file', 'text', 'untrained'} for each in found)
    assert not any(each['untrained'] or 'untrained' in each['text'] for each in found)
    assert 'relative position bias, block 0' in found[0]['title']
    cfg.model.backbone.pos_encoding = dict(type='mmposenc.PEG')
    cfg.model.backbone.rel_pos_encoding = None
    found = figures_of(cfg, None, tmp_path / 'out')
    assert len(found) == 4
    assert all(each['untrained'] and 'untrained' in each['text'] for each in found)
    json.dumps(found)


@pytest.mark.parametrize('size,photo,side,expected', [
    (None, None, 32, (50, 70)), (None, (10, 20), 32, (32, 64)), (None, (10, 20), 64, (64, 64)),
    ((90, 33), (10, 20), 32, (90, 33)), ((64,), None, 32, (64, 64)),
    ((64,), (30, 45), 32, (64, 96)), ((448,), (300, 400), 28, (448, 588)),
    ((20,), (400, 300), 32, (32, 32))])
def test_sizes_of_the_input(size, photo, side, expected):
    cfg = Config(dict(model=dict(backbone=dict(img_size=(50, 70)))))
    assert input_size(cfg, size, photo, side) == expected


def test_cells_of_models():
    def side(backbone, divisor=None):
        return cell_side(SimpleNamespace(
            backbone=backbone, data_preprocessor=SimpleNamespace(pad_size_divisor=divisor)))

    pvt = PVT(embed_dims=(8, 8), num_layers=(1, 1), num_heads=(1, 1), sr_ratios=(2, 1),
              mlp_ratios=(1, 1), patch_sizes=(4, 2), out_indices=(1,))
    swin = Swin(embed_dims=8, num_layers=(1, 1, 1), num_heads=(1, 1, 1), window_size=4)
    assert (side(pvt), side(swin), side(torch.nn.Identity())) == (8, 16, 32)
    vit = DeiT(img_size=28, patch_size=14, embed_dims=8, num_layers=1, num_heads=1, mlp_ratio=1)
    assert (side(vit), side(vit, 32)) == (14, 224)


def test_sizes_of_a_figure(config, visualize, tmp_path):
    out = tmp_path / 'x.png'
    visualize(config, '--figure', 'bias', '--width', 3.3, '--dpi', 100, '--out', out)
    with Image.open(out) as image:
        assert image.width == 330
