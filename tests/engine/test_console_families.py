"""At most twenty lines before the first step, whatever the family of the model says."""
from __future__ import annotations

import re
from pathlib import Path

import pytest
from scripts import named
from tinydata import make_coco
from tinymodels import shrink
from tinytasks import segmentor_config

from mmposenc import engine
from mmposenc.commands import main


def detector(name: str, folder: Path) -> str:
    """A narrow one on four pictures, for an epoch; returns its config."""
    data, cfg = make_coco(folder / 'data'), shrink(engine.load_config(f'mmposenc::{name}'))
    cfg.model.bbox_head.num_classes = 2
    for loader in (cfg.train_dataloader, cfg.val_dataloader):
        loader.update(num_workers=0, persistent_workers=False)
        loader.dataset.update(data_root=str(data), ann_file='annotations.json',
                              data_prefix=dict(img='images/'), pipeline=[
                                  dict(type='mmposenc.LoadImageFromFile'),
                                  dict(type='Resize', scale=(64, 64), keep_ratio=True),
                                  dict(type='LoadAnnotations', with_bbox=True),
                                  dict(type='PackDetInputs', meta_keys=(
                                      'img_id', 'img_path', 'ori_shape', 'img_shape',
                                      'scale_factor'))],
                              metainfo=dict(classes=('square', 'disc')))
    cfg.test_dataloader = cfg.val_dataloader
    cfg.val_evaluator.ann_file = cfg.test_evaluator.ann_file = str(data / 'annotations.json')
    cfg.train_cfg.max_epochs = 1
    cfg.dump(folder / 'config.py')
    return str(folder / 'config.py')


def segmentor(name: str, folder: Path) -> str:
    """The same of a segmentor, for two iterations."""
    cfg = shrink(engine.load_config(f'mmposenc::{name}'))
    small = engine.load_config(str(segmentor_config(folder)))
    for key in ('train_dataloader', 'val_dataloader', 'test_dataloader', 'val_evaluator',
                'test_evaluator', 'train_cfg'):
        cfg[key] = small[key]
    cfg.model.decode_head.num_classes = 2
    cfg.dump(folder / 'config.py')
    return str(folder / 'config.py')


CASES = {
    'PVT': (detector, 'detection/pvt/retinanet_pvt-t-peg_fpn_1x_coco.py'),
    'Swin': (detector, 'detection/retinanet/retinanet_swin-t-peg_fpn_1x_coco.py'),
    'DETR': (detector, 'detection/detr/detr_r50_8xb2-150e_coco.py'),
    'SemanticFPN': (segmentor, 'segmentation/sem_fpn/fpn_pvt-t-peg_8xb2-80k_ade20k-512x512.py')}


@pytest.mark.slow
@pytest.mark.parametrize('family', CASES)
def test_few_lines_before_the_first_step(family, tmp_path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    made, name = CASES[family]
    config = made(name, tmp_path)
    main(['train', config, '--work-dir', 'work', '--cfg-options',
          'default_hooks.logger.interval=1', *named(f'{family}_lines')])
    out, err = capfd.readouterr()
    lines = out.splitlines()
    first = next(i for i, line in enumerate(lines) if re.search(r'(Epoch|Iter)\(train\)', line))
    assert 4 <= first <= 20 and err == '', out + err
    kinds = [re.sub(r'\S*[\d./]\S*', '', line) for line in lines if ' warning: ' in line]
    assert len(kinds) == len(set(kinds)), out
    before, last = '\n'.join(lines[:first]), [line[9:].partition(':')[0] for line in lines[-2:]]
    assert ' training ' in before and ' steps' in before and 'images in batches of' in before
    assert last == ['weights', 'log']
    if family == 'PVT':  # the predictions of two steps score less than its test asks for
        weights = re.search(r'weights: (\S+)', out)[1]
        main(['predict', 'data/images', config, weights, '--out', 'own', '--score-thr', '0'])
        assert ('nothing was found that scores more than 0 (--score-thr); the model drops what '
                'scores less than model.test_cfg.score_thr=0.05') in capfd.readouterr().out
