"""Scripts of mmdet and mmseg on configs and data sets of this project (docs/their-tools.md)."""
from pathlib import Path

import numpy as np
import pytest
from helpers.scripts import run_python
from helpers.tiny_data import tiny_detector
from PIL import Image

import mmposenc  # noqa: F401  (before mmdet)


def test_mmsegs_tools_find_the_names_of_our_classes(tmp_path) -> None:
    from mmposenc.openmmlab.mmseg import SegDataset
    for kind in ('images', 'labels'):
        (tmp_path / kind).mkdir()
        Image.fromarray(np.zeros((4, 4), np.uint8)).save(tmp_path / kind / 'a.png')
    data = SegDataset(data_root=str(tmp_path), img_suffix='.png', metainfo=dict(classes=('a', 'b')),
                      data_prefix=dict(img_path='images', seg_map_path='labels'))
    assert data.METAINFO['classes'] == ('a', 'b') and not SegDataset.METAINFO.get('classes')


def run(script: str, *words: object, folder: Path) -> str:
    return run_python('-W', 'ignore', '-m', 'mmposenc', 'run', script, *words, folder=folder)


@pytest.mark.slow
def test_tools_of_mmdet(tmp_path) -> None:
    config = tiny_detector(tmp_path)
    config.write_text(config.read_text() + 'model.update(test_cfg=dict(score_thr=0))\n')
    tools = 'mmdet::tools/analysis_tools'
    run('mmdet::tools/train.py', 'tiny.py', folder=tmp_path)
    run('mmdet::tools/test.py', 'tiny.py', 'work_dirs/tiny/epoch_1.pth', '--out', 'p.pkl',
        folder=tmp_path)
    run(f'{tools}/confusion_matrix.py', 'tiny.py', 'p.pkl', 'matrix', folder=tmp_path)
    assert Image.open(tmp_path / 'matrix/confusion_matrix.png').size[0] > 100
    run(f'{tools}/analyze_results.py', 'tiny.py', 'p.pkl', 'worst', '--topk', 2, folder=tmp_path)
    assert len(list((tmp_path / 'worst/bad').iterdir())) == 2
    assert 'bbox_mAP' in run(f'{tools}/eval_metric.py', 'tiny.py', 'p.pkl', folder=tmp_path)
