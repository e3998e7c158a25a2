"""The quickstart's configs, trained and tested; the command is in tests/commands."""
from __future__ import annotations

from pathlib import Path

import pytest
import torch
from mmengine.registry import TASK_UTILS, init_default_scope
from PIL import Image
from scripts import NARROW, load_tool, named
from tinydata import make_trees

import mmposenc  # noqa: F401
from mmposenc.engine import load_config

ROOT = Path(__file__).resolve().parents[2]
TREES, BLOCK, BCCD = (f'mmposenc::detection/small/retinanet_pvt-micro-peg_fpn_1xb4-12e_{name}.py'
                      for name in ('trees', 'trees-block', 'bccd'))


@pytest.fixture(autouse=True)
def scope():
    init_default_scope('mmdet')


def test_every_object_gets_an_anchor():
    """Squares of 10 to 130 pixels anywhere: the best anchor is close enough to be trained."""
    model = load_config(TREES).model
    generator = TASK_UTILS.build({**model.bbox_head.anchor_generator, 'type': 'AnchorGenerator'})
    anchors = torch.cat(generator.grid_priors([(52, 52), (26, 26), (13, 13)], device='cpu'))
    assigner = model.train_cfg.assigner
    from mmdet.structures.bbox import bbox_overlaps
    for side in range(10, 131, 4):
        x, y = torch.meshgrid(torch.arange(150, 182, 2.0), torch.arange(150, 182, 2.0),
                              indexing='ij')
        boxes = torch.stack((x, y, x + side, y + side), -1).reshape(-1, 4)
        worst = bbox_overlaps(boxes, anchors).amax(1).min()
        assert worst >= assigner.min_pos_iou
        assert side < 24 or worst >= assigner.pos_iou_thr, side


def test_train_test_and_table(tmp_path, monkeypatch, capsys):
    """What the quickstart runs, on four tiles and a narrow model."""
    make_trees(tmp_path / 'data' / 'trees', ('train', 'val_block', 'val'))
    monkeypatch.chdir(tmp_path)
    load_tool('train').main([TREES, '--work-dir', 'work', '--cfg-options', *NARROW,
                        'train_dataloader.dataset.times=1', 'train_cfg.max_epochs=1',
                        'train_cfg.val_interval=1', *named('small_train')])
    checkpoint = f"work/{Path('work/last_checkpoint').read_text()}"  # relative to the folder
    assert {'state_dict', 'ema_state_dict'} <= set(torch.load(checkpoint, weights_only=False))
    for config, name in ((BLOCK, 'block'), (TREES, 'plot')):
        load_tool('test').main([config, checkpoint, '--work-dir', f'work/{name}', '--show-dir',
                           f'pictures/{name}', '--cfg-options', 'model.test_cfg.score_thr=0.0',
                           *NARROW, *named(f'small_{name}')])
    pictures = sorted(Path('pictures').rglob('*.*'))
    assert len(pictures) == 8
    with Image.open(pictures[0]) as picture:  # ground truth and predictions side by side
        assert picture.size == (2 * 64, 44)
    capsys.readouterr()
    load_tool('show_metrics').main(['block=work/block', 'other plot=work/plot'])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ['AP', 'AP50', 'AP75']
    assert [line.split()[0] for line in lines[1:]] == ['block', 'other']
