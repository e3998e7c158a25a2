"""Scripts of mmdet on a config and a data set of this project (docs/their-tools.md)."""
from pathlib import Path

import pytest
from helpers.scripts import run_python
from helpers.tiny_data import tiny_detector
from PIL import Image


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
