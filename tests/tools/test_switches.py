"""Encodings switched on and off on the command line of the tools."""
from __future__ import annotations

import pytest
import torch
from scripts import ROOT
from tinydata import DETECTOR, detector_config, make_coco

TABLE = 'model.backbone.pos_encoding'
pytestmark = pytest.mark.slow  # trainings; what is switched is in tests/engine/test_overrides.py


@pytest.fixture(scope='module')
def config(tmp_path_factory):
    """A tiny RetinaNet on a PVT with learned tables."""
    root = tmp_path_factory.mktemp('switches')
    base = ROOT / 'configs' / 'detection' / 'pvt' / 'retinanet_pvt-t_fpn_1x_coco.py'
    return detector_config(root / 'tiny.py', make_coco(root / 'data', images=2), str(base))


def encodings(path) -> set[str]:
    """Last names of the encodings' weights."""
    state = torch.load(path, weights_only=False)['state_dict']
    return {name.rsplit('.', 1)[1] for name in state if 'pos_encodings' in name}


def test_on_off_and_to_another(config, train, test, visualize, tmp_path, capsys) -> None:
    peg = f'{TABLE}.type=mmposenc.PEG'
    train(config, '--work-dir', tmp_path / 'peg', '--cfg-options', peg)
    assert f"{TABLE}.interpolation='bilinear' is left out, which mmposenc.PEG does not take" \
        in capsys.readouterr().out
    assert encodings(tmp_path / 'peg' / 'epoch_1.pth') == {'weight', 'bias'}
    train(config, '--work-dir', tmp_path / 'none', '--cfg-options', f'{TABLE}=None')
    assert encodings(tmp_path / 'none' / 'epoch_1.pth') == set()

    checkpoint = tmp_path / 'peg' / 'epoch_1.pth'
    test(config, checkpoint, '--work-dir', tmp_path / 'test', '--cfg-options', peg)
    assert 'mmposenc.PEG does not take' in capsys.readouterr().out
    with pytest.raises(SystemExit, match='does not fit the model'):
        test(config, checkpoint, '--work-dir', tmp_path / 'test2')
    image = next((config.parent / 'data' / 'images').iterdir())
    visualize(config, checkpoint, '--image', image, '--output-dir', tmp_path / 'figures',
              '--cfg-options', peg)
    assert list((tmp_path / 'figures').iterdir())


def test_deformable_detr_takes_an_encoding_that_its_config_does_not_have(config, train, tmp_path
                                                                         ) -> None:
    base = ROOT / 'configs' / 'detection' / 'small' / 'deformable-detr_r18-w16_1xb4-50e_bccd.py'
    data = DETECTOR[DETECTOR.index('pipeline = ['):].replace('{root}', str(config.parent / 'data'))
    small = tmp_path / 'deformable.py'
    small.write_text(f"""
_base_ = {str(base)!r}
model = dict(num_queries=5, bbox_head=dict(num_classes=2), test_cfg=dict(max_per_img=5))
{data}
train_dataloader['dataset'].update(_delete_=True, type='mmposenc.CocoDataset')
""")
    section = 'model.encoder.pos_encoding'
    for name, options in (('none', []), ('peg', [f'{section}.type=mmposenc.PEG',
                                                 'model.encoder.positions=(0,1)'])):
        train(small, '--work-dir', tmp_path / name, '--cfg-options', *options)
    assert encodings(tmp_path / 'none' / 'epoch_1.pth') == set()
    assert encodings(tmp_path / 'peg' / 'epoch_1.pth') == {'weight', 'bias'}
