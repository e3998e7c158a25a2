"""Parameters and multiply-accumulates, by hand and as papers have them."""
import pytest
import torch
from helpers.tiny_data import detector_config

from mmposenc import engine
from mmposenc.lab.inspect import counts as module
from mmposenc.lab.inspect.counts import count_for_one_image

SEM_FPN = 'mmposenc::segmentation/sem_fpn/fpn_pvt-t{}_8xb2-80k_ade20k-512x512.py'
DETR = 'mmposenc::detection/detr/detr_r50_irpe-ctx-9x9_8xb2-150e_coco.py'


@pytest.mark.parametrize('config, size, millions, billions', [
    (SEM_FPN.format(''), (512, 512), 17.0, 33.2),  # PVT, table 5
    # mmdet says 239.3 G at 800 x 1280, norms and the enlarging of maps included.
    ('mmdet::retinanet/retinanet_r50_fpn_1x_coco.py', (800, 1280), 38.0, 239.3)])
def test_the_papers_counts(config, size, millions, billions):
    counts = count_for_one_image(engine.load_config(config), size)
    assert counts.parameters / 1e6 == pytest.approx(millions, rel=0.005)
    assert counts.macs / 1e9 == pytest.approx(billions, rel=0.005)
    assert counts.note == '' and counts.hw_shape == size


@pytest.mark.parametrize('config, size, number, model, encodings', [
    (SEM_FPN.format('-peg'), (512, 512), 10 * (64 + 128 + 320 + 512), 'EncoderDecoder on PVT',
     ['PEG after block 0 of stages 0 to 3: 4 modules, 10,240 parameters']),
    (DETR, (256, 320), 6 * 81 * 32, 'DETR on ResNet',
     ['IRPE in 6 attentions of the encoder: 6 modules, 15,552 parameters',
      'SinePositionalEncoding (positional_encoding)']),
    ('mmpretrain::swin_transformer/swin-tiny_16xb64_in1k.py', (224, 224),
     169 * (2 * 3 + 2 * 6 + 6 * 12 + 2 * 24), 'ImageClassifier on SwinTransformer',
     ["SwinTransformer's own relative_position_bias_table in 12 WindowMSA: 12 tables, 23,322 "
      'parameters'])])
def test_parameters_of_encodings(config, size, number, model, encodings):
    counts = count_for_one_image(engine.load_config(config), size)
    assert counts.parameters - counts.parameters_without == number
    assert (counts.model, counts.encodings) == (model, encodings)


@pytest.mark.parametrize('backbone', [
    dict(rel_pos_encoding=dict(type='mmposenc.IRPE', method='product')),
    dict(pos_encoding=dict(type='mmposenc.ContextPool'))])
def test_the_cpu_counts_what_meta_counts(tmp_path, monkeypatch, backbone):
    """Whichever implementation of attention or pooling a CPU runs."""
    cfg = engine.load_config(str(detector_config(tmp_path / 'tiny.py', tmp_path)))
    cfg.model.backbone.update(backbone)
    on_meta = count_for_one_image(cfg, (96, 160))
    built = module.build_bare
    monkeypatch.setattr(module, 'build_bare', lambda cfg, device='cpu': (
        built(cfg, device) if device == 'cpu' else 1 / 0))
    on_cpu = count_for_one_image(cfg, (96, 160))
    assert on_cpu.note == ('counted with random weights on the CPU; shapes do not suffice '
                           '(ZeroDivisionError: division by zero)')
    assert on_cpu[:-1] == on_meta[:-1]


def test_a_size_below_one_and_random_numbers():
    cfg = engine.load_config('mmposenc::classification/small/deit-micro-peg_1xb32-40e_mnist5k.py')
    with pytest.raises(ValueError, match=r'size=\(0, 3\) must be at least'):
        count_for_one_image(cfg, (0, 3))
    state = torch.get_rng_state()
    count_for_one_image(cfg, (64, 64))
    assert torch.equal(torch.get_rng_state(), state)
