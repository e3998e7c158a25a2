"""Parameters and multiply-accumulates, with and without encodings: by hand, and the papers'."""
import pytest
import torch
from helpers.tiny_data import detector_config

from mmposenc import engine
from mmposenc.lab.inspect import counts as module
from mmposenc.lab.inspect.counts import count_for_one_image

SEM_FPN = 'mmposenc::segmentation/sem_fpn/fpn_pvt-t{}_8xb2-80k_ade20k-512x512.py'


@pytest.mark.parametrize('config, size, millions, billions', [
    (SEM_FPN.format(''), (512, 512), 17.0, 33.2),  # PVT, table 5
    ('mmposenc::classification/swin/swin-t_8xb128_in1k.py', (224, 224), 28.3, 4.5),
    # mmdet says 239.3 G at 800 x 1280, norms and the enlarging of maps included.
    ('mmdet::retinanet/retinanet_r50_fpn_1x_coco.py', (800, 1280), 38.0, 239.3)])
def test_the_papers_counts(config, size, millions, billions):
    counts = count_for_one_image(engine.load_config(config), size, without=False)
    assert counts.parameters / 1e6 == pytest.approx(millions, rel=0.005)
    assert counts.macs / 1e9 == pytest.approx(billions, rel=0.005)
    assert counts.macs_without is None and counts.note == '' and counts.hw_shape == size


def test_what_pegs_add_is_their_convolutions():
    counts = count_for_one_image(engine.load_config(SEM_FPN.format('-peg')), (512, 512))
    channels, sides = (64, 128, 320, 512), (128, 64, 32, 16)
    assert counts.parameters - counts.parameters_without == sum(10 * c for c in channels)
    assert counts.macs - counts.macs_without == sum(
        9 * c * side * side for c, side in zip(channels, sides, strict=True))
    assert counts.model == 'EncoderDecoder on PVT'
    assert counts.encodings == [
        'PEG after block 0 of stages 0 to 3: 4 modules, 10,240 parameters']


def test_a_relative_encoding_in_a_detrs_encoder():
    """On keys: a product of each query and the vector of each bucket, in six layers."""
    counts = count_for_one_image(engine.load_config(
        'mmposenc::detection/detr/detr_r50_irpe-ctx-9x9_8xb2-150e_coco.py'), (256, 320))
    assert counts.macs - counts.macs_without == 6 * (8 * 10) * 256 * 81
    assert counts.parameters - counts.parameters_without == 6 * 81 * 32
    assert counts.encodings == [
        'IRPE in 6 attentions of the encoder: 6 modules, 15,552 parameters',
        'SinePositionalEncoding (positional_encoding)']


def test_other_libraries_encodings_are_taken_off():
    """A table of Swin's costs parameters alone; Twins' PEGs (mmpretrain) are convolutions."""
    counts = count_for_one_image(
        engine.load_config('mmpretrain::swin_transformer/swin-tiny_16xb64_in1k.py'),
                                 (224, 224))
    tables = 169 * (2 * 3 + 2 * 6 + 6 * 12 + 2 * 24)
    assert counts.parameters - counts.parameters_without == tables
    assert counts.macs == counts.macs_without
    assert counts.encodings == ["SwinTransformer's own relative_position_bias_table in 12 "
                                f'WindowMSA: 12 tables, {tables:,} parameters']
    counts = count_for_one_image(
        engine.load_config('mmpretrain::twins/twins-pcpvt-base_8xb128_in1k.py'),
                                 (64, 96))
    channels, cells = (64, 128, 320, 512), (16 * 24, 8 * 12, 4 * 6, 2 * 3)
    assert counts.macs - counts.macs_without == sum(
        9 * c * area for c, area in zip(channels, cells, strict=True))
    assert counts.note.startswith(
        'counted with random weights on the CPU; shapes do not suffice (')


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
    assert on_cpu.note.endswith('(ZeroDivisionError: division by zero)')
    assert on_cpu[:5] == on_meta[:5] and on_cpu.macs > on_cpu.macs_without


def test_an_encoding_that_changes_the_grid_stays():
    cfg = engine.load_config('mmposenc::classification/small/deit-micro-peg_1xb32-40e_mnist5k.py')
    cfg.model.backbone.pos_encoding.padding = 'none'
    counts = count_for_one_image(cfg, (56, 56))
    assert counts.macs_without is None
    assert counts.note == ('backbone.pos_encodings.at.after0.0 changes the grid, so the model does '
                           'not run without it')
    with pytest.raises(ValueError, match=r'size=\(0, 3\) must be at least'):
        count_for_one_image(cfg, (0, 3))
    state = torch.get_rng_state()
    count_for_one_image(cfg, (64, 64), without=False)
    assert torch.equal(torch.get_rng_state(), state)
