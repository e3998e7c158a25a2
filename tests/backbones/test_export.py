"""Backbones as exported programs and as ONNX files, for any number of images of any size.

benchmarks/export.py runs all pairs; iRPE, PEG and sizes as an input are exported with whole models
and by the page.
"""
import pytest
import torch
from scripts import load_script

export = load_script('benchmarks', 'export')
SIZES = ((33, 47), (56, 40))


@pytest.mark.filterwarnings('ignore')
def test_onnx(tmp_path):
    """Windows of maps that are no whole number of them."""
    model = export.build('swin', 'RelativePositionBias')
    run = export.onnx_run(export.exported(model), ['images'], tmp_path)
    assert export.difference(model, run, sizes=SIZES) < 1e-5


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('backbone, encoding, strict, sizes', [
    ('pvt', 'LearnedPositionEmbedding', True, SIZES), ('vit', 'ContextPool', False, SIZES),
    # last maps of one window, of one row of them and of one column
    ('swin', 'RelativePositionBias', False, ((20, 20), (16, 100), (100, 16)))])
def test_program(backbone, encoding, strict, sizes):
    model = export.build(backbone, encoding)
    program = export.exported(model, strict=strict)
    assert export.difference(model, program.module(), sizes=sizes) < 1e-5


@pytest.mark.parametrize('backbone', export.BACKBONES)
def test_sizes_as_a_tensor(backbone):
    """They mask what sizes as numbers mask, in a batch that is not cut to its largest image."""
    model = export.build(backbone, 'PEG', mask_padding=True)
    torch.manual_seed(1)
    images, sizes = torch.randn(2, 3, 56, 48), [[56, 30], [33, 48]]
    with torch.no_grad():
        for ours, other in zip(model(images, torch.tensor(sizes)), model(images, sizes),
                               strict=True):
            torch.testing.assert_close(ours, other, atol=1e-5, rtol=1e-4)


def test_wrong_sizes():
    model = export.build('pvt', 'none', mask_padding=True)
    with pytest.raises(ValueError, match=r'img_shapes has shape \(3, 2\); \(B, 2\) = \(2, 2\)'):
        model(torch.randn(2, 3, 32, 32), torch.ones(3, 2, dtype=torch.long))
