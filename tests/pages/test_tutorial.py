"""docs/tutorial.md: from data to an exported file, with its own commands on tiny data."""
import json

import pytest
from helpers.page_blocks import commands, run_page
from helpers.scripts import NARROW, named
from helpers.tiny_data import make_trees

from mmposenc.commands import main

PAGE = 'docs/tutorial.md'
NARROWER = [*NARROW, 'train_dataloader.dataset.times=1', 'train_cfg.max_epochs=1',
            'param_scheduler.1.end=1', 'model.test_cfg.score_thr=0.0', 'model.test_cfg.nms_pre=20',
            'model.neck.out_channels=8', 'model.bbox_head.in_channels=8',
            'model.bbox_head.feat_channels=8']


@pytest.mark.slow
@pytest.mark.filterwarnings('ignore')
def test_the_page(tmp_path, monkeypatch):
    make_trees(tmp_path / 'data' / 'trees', ('train', 'val'))
    found = [words[1:] for words in commands(PAGE) if words[0] == 'mmposenc']
    assert [words[0] for words in found] == [
        'prepare', 'browse', 'train', 'test', 'predict', 'export', 'train']
    monkeypatch.chdir(tmp_path)
    for number, words in enumerate(found[1:]):
        words = [word.replace('epoch_12', 'epoch_1') for word in words]
        extra = named(f'tutorial_{number}') if words[0] in ('train', 'test') else []
        given = '--cfg-options' in words
        main([*words, *([] if given else ['--cfg-options']), *NARROWER, *extra])
    predicted = json.loads((tmp_path / 'predicted' / 'predictions.json').read_text())
    assert len(predicted['images']) == 4 and predicted['complete']
    assert list((tmp_path / 'work_dirs' / 'pictures').rglob('*.*'))
    weights = tmp_path / 'work_dirs' / 'trees' / 'epoch_1.pth'
    weights.rename(weights.with_name('epoch_12.pth'))
    names = run_page(PAGE, tmp_path)
    # The file has predict's boxes: those of the same picture, best first.
    first = sorted(predicted['images'], key=lambda each: each['file'])[0]
    assert first['file'].endswith(min((tmp_path / 'data/trees/images/val').iterdir()).name)
    by_name = {each['file']: each['scores'] for each in predicted['images']}
    for each in names['results']:
        assert each.scores.tolist() == pytest.approx(by_name[each.file], abs=1e-6)
    assert (tmp_path / 'first.jpg').is_file()
    assert names['boxes'].shape[1] == 4 and len(names['scores']) == len(names['boxes']) > 0
