"""What tools/quickstart.sh segmentation does with its config, and its pictures."""
from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from scopes import scope_fixture
from scripts import NARROW, load_tool, named
from tinydata import make_nuclei

pytest.importorskip('mmseg')
scope = scope_fixture('mmseg')
NUCLEI = 'mmposenc::segmentation/small/fpn_pvt-micro-peg_1xb4-10e_nuclei-128x128.py'


def test_train_test_and_table(tmp_path, monkeypatch, capsys):
    """What the quickstart runs, on four tiles and a narrow model; and sliding windows."""
    make_nuclei(tmp_path / 'data' / 'nuclei')
    monkeypatch.chdir(tmp_path)
    load_tool('train').main([NUCLEI, '--work-dir', 'work', '--cfg-options', *NARROW,
                        'train_dataloader.dataset.times=2', 'train_cfg.max_epochs=1',
                        'train_cfg.val_interval=1', *named('seg_small_train')])
    checkpoint = f"work/{Path('work/last_checkpoint').read_text()}"  # relative to the folder
    assert {'state_dict', 'ema_state_dict'} <= set(torch.load(checkpoint, weights_only=False))
    test = load_tool('test')
    test.main([NUCLEI, checkpoint, '--work-dir', 'work/strip', '--show-dir', 'pictures',
               '--cfg-options', *NARROW, *named('seg_small_strip')])
    log = next(Path('work/strip').glob('*/*.log')).read_text()
    assert 'per class results' in log and '| background |' in log and '|  nucleus   |' in log
    assert sorted(path.name for path in Path('pictures').iterdir()) == ['0.png', '1.png']
    with Image.open('pictures/0.png') as picture:  # ground truth and prediction side by side
        assert picture.size == (2 * 64, 64)
    test.main([NUCLEI, checkpoint, '--work-dir', 'work/tta', '--tta', '--cfg-options', *NARROW,
               *named('seg_small_tta')])
    test.main([NUCLEI, checkpoint, '--work-dir', 'work/slide', '--cfg-options', *NARROW,
               'model.test_cfg.mode=slide', 'model.test_cfg.crop_size=48,48',
               'model.test_cfg.stride=16,16', 'test_dataloader.batch_size=2',
               *named('seg_small_slide')])
    found = [json.loads(next(Path(f'work/{name}').glob('*/*.json')).read_text())['mIoU']
             for name in ('strip', 'tta', 'slide')]
    assert all(0 < value <= 100 for value in found)
    capsys.readouterr()
    load_tool('show_metrics').main(['strip=work/strip', 'views=work/tta'])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ['mIoU', 'mAcc', 'aAcc']
    assert [line.split()[0] for line in lines[1:]] == ['strip', 'views']


@pytest.mark.parametrize('side, named', [(64, False), (256, True)])
def test_small_pictures_are_not_covered_by_names(tmp_path, side, named):
    from types import SimpleNamespace

    from mmengine.visualization import Visualizer

    from mmposenc.engine.apps.seg_visualization import SegVisualizationHook
    Visualizer.get_instance(f'seg_small_pictures_{side}')
    Image.new('RGB', (300, side)).save(tmp_path / 'a.png')
    drawn = []
    hook = SegVisualizationHook(draw=True, test_out_dir=str(tmp_path))
    hook._visualizer = SimpleNamespace(add_datasample=lambda *args, **kwargs: drawn.append(kwargs))
    hook.after_test_iter(None, 0, {}, [SimpleNamespace(img_path=str(tmp_path / 'a.png'))])
    assert drawn[0]['with_labels'] is named
    assert drawn[0]['out_file'] == str(tmp_path / 'a.png')
