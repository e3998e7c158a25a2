"""mmposenc complexity: the papers' figures, sums by module, other libraries' models, names."""
from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F
from tinydata import detector_config
from torch import nn

from mmposenc import engine
from mmposenc.backbones.operators import OperatorCounter
from mmposenc.commands.complexity import main
from mmposenc.engine.apps import complexity
from mmposenc.engine.apps.complexity import count

SEM_FPN = 'mmposenc::segmentation/sem_fpn/fpn_pvt-t_8xb2-80k_ade20k-512x512.py'


@pytest.mark.parametrize('config, size, millions, billions', [
    (SEM_FPN, (512, 512), 17.0, 33.2),  # PVT, table 5
    ('mmposenc::classification/swin/swin-t_8xb128_in1k.py', (224, 224), 28.3, 4.5)])
def test_the_papers_figures(config, size, millions, billions) -> None:
    whole = count(engine.load_config(config), size).parts[0]
    assert whole.parameters / 1e6 == pytest.approx(millions, rel=0.003)
    assert whole.macs / 1e9 == pytest.approx(billions, rel=0.005)


def test_a_detector_of_mmdet_alone() -> None:
    """mmdet says 239.3 G at 800 x 1280, norms and the enlarging of maps included."""
    counted = count(engine.load_config('mmdet::retinanet/retinanet_r50_fpn_1x_coco.py'),
                    (800, 1280))
    parts = {part.name: part for part in counted.parts}
    assert counted.counted_on == 'meta' and parts[''].macs / 1e9 == pytest.approx(239.3, rel=0.005)
    # Heads of 9 anchors and 80 classes on cells of five levels; four convolutions and the last.
    cells = sum((800 // s) * (1280 // s) for s in (8, 16, 32)) + 7 * 10 + 13 * 20
    assert parts['bbox_head.retina_cls'].macs == cells * 9 * 256 * 720
    assert parts['bbox_head.cls_convs'].macs == cells * 9 * 256 * 256 * 4
    assert parts['bbox_head.cls_convs'].activations == cells * 256 * 4
    assert parts['bbox_head'].macs == cells * 9 * 256 * (256 * 8 + 720 + 36)
    assert parts[''].macs == sum(parts[name].macs for name in ('backbone', 'neck', 'bbox_head'))
    assert parts[''].parameters == sum(parts[name].parameters
                                       for name in ('backbone', 'neck', 'bbox_head'))


@pytest.mark.parametrize('backbone', [
    dict(rel_pos_encoding=dict(type='mmposenc.IRPE', method='product')),
    dict(pos_encoding=dict(type='mmposenc.ContextPool'))])
def test_the_cpu_counts_what_meta_counts(tmp_path, monkeypatch, backbone) -> None:
    """Whichever form of attention or pooling a CPU runs."""
    cfg = engine.load_config(str(detector_config(tmp_path / 'tiny.py', tmp_path)))
    cfg.model.backbone.update(backbone)
    on_meta = count(cfg, (96, 160))
    built = complexity.build_bare
    devices = iter(['fails', 'cpu', 'meta'])  # the third is for the backbone alone
    monkeypatch.setattr(complexity, 'build_bare', lambda cfg, device: (
        built(cfg, device) if next(devices) == device else 1 / 0))
    on_cpu = count(cfg, (96, 160))
    assert (on_meta.counted_on, on_cpu.counted_on) == ('meta', 'cpu')
    assert on_cpu.note == 'ZeroDivisionError: division by zero'
    assert on_cpu.parts == on_meta.parts


def test_what_is_not_counted_is_named() -> None:
    class Sampler(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            grid = torch.zeros(1, 5, 7, 2, device=x.device)
            return F.grid_sample(self.conv(x).relu(), grid, align_corners=False)

    model = Sampler()
    with OperatorCounter(model) as counter:
        model(torch.zeros(1, 3, 8, 10))
    assert counter.uncounted == {('', 'aten.grid_sampler_2d'): 1}
    assert {name for _, name in counter.by_convention} >= {'relu', 'zeros'}
    assert sum(counter.macs.values()) == 6 * 8 * 27 * 4
    assert sum(counter.activations.values()) == 6 * 8 * 4


def test_the_command(tmp_path, capsys) -> None:
    config = str(detector_config(tmp_path / 'tiny.py', tmp_path))
    main([config, '--size', '64', '96', '--depth', '1'])
    text = capsys.readouterr().out.splitlines()
    assert text[0].split() == ['parameters', 'MACs', '(M)', 'activations', '(M)']
    assert text[1].startswith('one image of 64 x 96')
    assert [line.split()[0] for line in text[2:5]] == ['backbone', 'neck', 'bbox_head']
    assert text[5].startswith('count nothing, as in the papers: ')
    assert 'native_layer_norm' in text[5]

    main([config, '--size', '64', '--size', '96', '128', '--time', '--json',
          '--plot', str(tmp_path / 'by size.svg')])
    told = json.loads(capsys.readouterr().out)
    assert [size['hw_shape'] for size in told['sizes']] == [[64, 64], [96, 128]]
    first, second = (size['parts'][0] for size in told['sizes'])
    assert second['macs'] > 3 * first['macs'] and second['parameters'] == first['parameters']
    assert all(size['time']['seconds'] > 0 and size['time']['threads'] for size in told['sizes'])
    assert '</svg>' in (tmp_path / 'by size.svg').read_text()
