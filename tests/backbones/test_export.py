"""Backbones as exported programs and as ONNX files, for any number of images of any size; recorders
that store the sizes of the example are refused.

iRPE, PEG and sizes as an input are exported with whole models and by the page.
"""
import io
from functools import partial

import pytest
import torch
from helpers.scripts import short
from helpers.tiny_backbones import BUILD, randomize
from mmengine.analysis import get_model_complexity_info

from mmposenc.engine.apps.export import onnx_runner

SIZES = ((33, 47), (56, 40))
BACKBONES = {
    **BUILD,
    'pvt v2': lambda **o: BUILD['pvt'](overlap=True, stage_norm=True, **{'key_cells': 3, **o}),
    'svt': lambda **o: BACKBONES['pvt v2'](key_cells=None, window_sizes=(3, 2), **o),
    'swin': lambda **o: BUILD['swin'](num_layers=(2, 1), **{'rel_pos_encoding': None, **o}),
}
CASES = {
    'pvt, learned': partial(BACKBONES['pvt'], pos_encoding=dict(type='LearnedPositionEmbedding')),
    'vit, pool': partial(BACKBONES['vit'], pos_encoding=dict(type='ContextPool'),
                         patch_size=(8, 12)),
    'vit, windows': partial(
        BACKBONES['vit'], window_size=(2, 3), register_tokens=1, global_blocks=(1,), norm='rms',
        attn_norm='qk', mlp_bias=False,
        pos_encoding=dict(type='LearnedPositionEmbedding', interpolation='tile'),
        rel_pos_encoding=dict(type='RotaryEmbedding', register_grid=(1, 1))),
    'vit, copied': partial(BACKBONES['vit'], window_count=2, window_tokens='copied',
                           global_blocks=(1,), rel_pos_encoding=dict(type='IRPE')),
    'pvt v2': partial(BACKBONES['pvt v2'], pos_encoding=dict(type='ConvMLP')),
    'svt': partial(BACKBONES['svt'], pos_encoding=dict(type='ConvMLP')),
    'svt of mmseg': partial(BACKBONES['svt'], mask_window_padding='both'),
    'swin': partial(BACKBONES['swin'], rel_pos_encoding=dict(type='RelativePositionBias'))}
DYNAMIC = torch.export.Dim.DYNAMIC


def exported(model, strict=False):
    """The program for any number of images of any size."""
    with torch.no_grad():
        return torch.export.export(model, (torch.randn(2, 3, 60, 76),), strict=strict,
                                   dynamic_shapes=({0: DYNAMIC, 2: DYNAMIC, 3: DYNAMIC},))


@torch.no_grad()
def difference(model, run, sizes=SIZES):
    """The largest over sizes, batches and outputs, in shares of an output's span."""
    worst = 0.0
    for size in sizes:
        for count in (1, 3):
            images = torch.randn(count, 3, *size)
            for ours, other in zip(model(images), run(images), strict=True):
                assert ours.shape == other.shape
                worst = max(worst, float((ours - other).abs().max() / (ours.max() - ours.min())))
    return worst


@pytest.mark.slow
@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('name', ['swin', 'pvt v2', 'svt', 'vit, windows', 'vit, copied'])
def test_onnx(name, tmp_path):
    """Windows of maps that are no whole number of them."""
    model = randomize(CASES[name]()).eval()
    made = torch.onnx.export(exported(model), (), dynamo=True, verbose=False,
                             input_names=['images'])
    made.save(tmp_path / 'model.onnx', external_data=False)
    assert difference(model, onnx_runner(tmp_path / 'model.onnx', ['images'])) < 1e-5


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('name', short(CASES, 'pvt v2'))
def test_program(name):
    model, strict = randomize(CASES[name]()).eval(), name == 'pvt, learned'
    # Last maps of one window, of one row of them and of one column.
    sizes = {'swin': ((20, 20), (16, 100), (100, 16)),
             'vit, windows': (*SIZES, (16, 20), (16, 100), (100, 16))}.get(name, SIZES)
    program = exported(model, strict=strict)
    assert difference(model, program.module(), sizes=sizes) < 1e-5


@pytest.mark.parametrize('backbone', BACKBONES)
def test_sizes_as_a_tensor(backbone):
    """They mask what sizes as numbers mask, in a batch that is not cut to its largest image."""
    model = randomize(BACKBONES[backbone](pos_encoding=dict(type='PEG'), mask_padding=True)).eval()
    torch.manual_seed(1)
    images, sizes = torch.randn(2, 3, 56, 48), [[56, 30], [33, 48]]
    with torch.no_grad():
        torch.testing.assert_close(model(images, torch.tensor(sizes)), model(images, sizes),
                                   atol=1e-5, rtol=1e-4)


@pytest.fixture(scope='module')
def traced():
    return BUILD['vit'](num_layers=1, out_indices=(0,)).eval()


def test_torch_jit_trace(traced):
    with pytest.raises(RuntimeError, match='store the sizes of the example'):
        torch.jit.trace(traced, torch.randn(2, 3, 32, 48))


@pytest.mark.filterwarnings('ignore')
def test_torchscript_exporter(traced):
    with pytest.raises(RuntimeError, match=r'use torch.export'):
        torch.onnx.export(traced, (torch.randn(2, 3, 32, 48),), io.BytesIO(), dynamo=False)


@pytest.mark.filterwarnings('ignore')
def test_counting_may_record(traced):
    """mmdet's get_flops does."""
    counted = get_model_complexity_info(traced, (3, 32, 48), show_table=False, show_arch=False)
    patches = 4 * 6
    assert counted['flops'] > patches * 16 * 16 * 12  # the products with the weights of a block
