"""mmposenc figures: one query, one figure and its numbers, a gallery, the few of a report."""
from __future__ import annotations

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.config import Config
from PIL import Image
from tinyfigures import deit, pvt
from tinytasks import deit_config
from tinyweights import saved

from mmposenc.backbones import Swin
from mmposenc.engine import load_config
from mmposenc.lab.figures.encoding_figures import cell_side, figures_of, input_size


@pytest.fixture
def config(tmp_path):
    return deit_config(tmp_path, img_size=(24, 32), num_layers=2, rel_pos_encoding=dict(
        type='mmposenc.IRPE', rpe_on='k'))


@pytest.fixture
def weights(config, tmp_path):
    return saved(config, tmp_path / 'some.pth')


@pytest.fixture
def photo(tmp_path):
    path = tmp_path / 'photo.png'
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (30, 90, 3), np.uint8)).save(path)
    return path


def test_figures_of_an_image(config, weights, photo, visualize, tmp_path, capsys):
    out = tmp_path / 'figures'
    visualize(config, weights, '--image', photo, '--size', 32, 40, '--at', 0.1, 0.9,
              '--output-dir', out)
    names = {path.name for path in out.iterdir()}
    assert names == {'buckets_product_4x5.png', *(f'{kind}_blocks_{i}_attn.png' for i in (0, 1)
                                                  for kind in ('attention', 'logits'))}
    assert f'wrote 5 figures to {out}' in capsys.readouterr().out


@pytest.mark.parametrize('suffix', [
    '.png', *(pytest.param(suffix, marks=pytest.mark.slow) for suffix in ('.svg', '.pdf'))])
def test_one_figure_and_its_numbers(config, visualize, tmp_path, capsys, suffix):
    out, arrays = tmp_path / 'new' / f'buckets{suffix}', tmp_path / 'numbers' / 'buckets.npz'
    visualize(config, '--figure', 'buckets', '--size', 32, 40, '--at', 0, 0, '--at', 0.9, 0.5,
              '--width', 3.3, '--dpi', 100, '--out', out, '--save-arrays', arrays)
    if suffix == '.png':
        with Image.open(out) as image:
            assert image.width == 330
    assert out.stat().st_size > 5000
    with np.load(arrays) as found:
        assert found['product'].shape == (2, 4, 5) and found['cells'].tolist() == [[0, 0], [3, 2]]
    assert f'wrote {out}, {arrays}' in capsys.readouterr().out


def test_models_side_by_side(config, weights, visualize, tmp_path):
    """An untrained model is the same each time; a checkpoint changes what is drawn."""
    arrays = tmp_path / 'x.npz'
    visualize(config, '--figure', 'matrix', '--block', 1, '--size', 32, 32, '--out',
              tmp_path / 'x.svg', '--save-arrays', arrays, '--against', config,
              '--against', config, weights, '--title', 'No encoding')
    with np.load(arrays) as found:
        first, second, third = (found[f'weights_{i}'] for i in range(3))
    assert first.shape == (17, 17)
    np.testing.assert_array_equal(first, second)
    assert not np.allclose(first, third)
    titles = re.findall('>([^<>]*)</text>', (tmp_path / 'x.svg').read_text())
    assert {'No encoding, untrained (random weights)', 'ViT with iRPE',
            'ViT with iRPE, untrained (random weights)', 'block 1'} <= set(titles)


@pytest.mark.slow
def test_a_page_of_two_models(config, photo, weights, visualize, tmp_path, capsys):
    folder, page = tmp_path / 'pictures', tmp_path / 'docs' / 'page.md'
    visualize(config, '--gallery', folder, '--page', page, '--image', photo, '--size', 24,
              '--at', 0.5, 0.9)
    made = {path.name for path in (folder / 'tiny').iterdir()}
    assert {'buckets_0.png', 'bias_0.png', 'overlay_1.png', 'matrix_1.png', 'figures.json'} <= made
    assert f'wrote {len(made)} figures to {folder}' in capsys.readouterr().out
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
    for given, pictures in ((str(weights), str(photo)), (None, None)):
        found = figures_of(cfg, given, tmp_path / 'out', pictures, size=(24, 32))
        assert [each['file'] for each in found] == [
            str(tmp_path / 'out' / f'{name}.png') for name in ('buckets_0', 'bias_0',
                                                               'references_0', 'overlay_1')]
        assert all(set(each) == {'title', 'file', 'text', 'untrained'} for each in found)
        assert all(each['untrained'] == ('untrained' in each['text']) == (given is None)
                   for each in found)
    assert found[0]['title'] == 'Buckets: iRPE, block 0'
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

    swin = Swin(embed_dims=8, num_layers=(1, 1, 1), num_heads=(1, 1, 1), window_size=4)
    assert (side(pvt()), side(swin), side(torch.nn.Identity())) == (8, 16, 32)
    vit = deit(img_size=28, patch_size=14)
    assert (side(vit), side(vit, 32)) == (14, 224)
