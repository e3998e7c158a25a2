"""The counter as a command: what a config builds, and whether its metafile says so."""
import pytest
from scripts import ROOT, load_tool

pytest.importorskip('mmpretrain')
CONFIG = ROOT / 'configs' / 'classification' / 'deit' / 'deit-ti_in1k.py'


@pytest.fixture(scope='module')
def tool():
    return load_tool('count_model')


def test_a_config_that_is_what_its_metafile_says(tool, capsys):
    tool.main([str(CONFIG)])
    assert capsys.readouterr().out.splitlines()[-1] == (
        'deit-ti_in1k  Parameters: 5717416, FLOPs: 1254000000')


def test_a_config_that_is_not(tool, capsys, monkeypatch):
    monkeypatch.setattr(tool, 'count', lambda path: {'Parameters': 1, 'FLOPs': 1254000000})
    with pytest.raises(SystemExit, match='error: metafiles say otherwise of 1 configs'):
        tool.main([str(CONFIG)])
    assert 'Parameters: 1, FLOPs: 1254000000  (metafile: {' in capsys.readouterr().out


def test_configs_without_counts(tool, tmp_path):
    assert tool.listed(tmp_path / 'new_in1k.py') is None
    assert tool.listed(ROOT / 'configs/detection/detr/detr_r50_8xb4-50e_coco.py') is None
    with pytest.raises(ValueError, match='test_dataloader.dataset.pipeline has no CenterCrop'):
        tool.input_size(ROOT / 'configs/classification/small/deit-micro-irpe-k_mnist5k.py')
