"""docs/your-config.md: from pictures to a tested model, with its own commands on tiny data."""
from __future__ import annotations

import json
import re

import pytest
from running import commands, configs, inside, run_page
from safetensors.torch import save_file
from scripts import named
from tinydata import make_coco

from mmposenc.backbones import ViT
from mmposenc.commands import main

PAGE = 'docs/your-config.md'
#: A ViT-S/14 with 24 channels on pictures of 112 pixels, one epoch, and one process.
NARROW = ['model.backbone.embed_dims=24', 'model.backbone.num_heads=3',
          'model.backbone.mlp_ratio=1', 'train_dataloader.num_workers=0',
          'val_dataloader.num_workers=0', 'test_dataloader.num_workers=0',
          'train_dataloader.batch_size=2', 'default_hooks.logger.interval=1',
          'train_cfg.max_epochs=1', 'train_cfg.val_interval=1', 'model.neck.in_channels=24,24,24',
          'model.neck.out_channels=8', 'model.bbox_head.in_channels=8',
          'model.bbox_head.feat_channels=8', 'model.bbox_head.norm_cfg.num_groups=2',
          'train_dataloader.dataset.dataset.pipeline.2.scale=(112,112)',
          'val_dataloader.dataset.pipeline.1.scale=(112,112)',
          'test_dataloader.dataset.pipeline.1.scale=(112,112)', 'model.test_cfg.score_thr=0.0',
          'model.test_cfg.nms_pre=20', 'model.test_cfg.max_per_img=5']


def test_the_page_runs(tmp_path):
    names = run_page(PAGE, tmp_path)
    assert names['model']['head']['num_classes'] == 2


@pytest.mark.slow
def test_commands_of_the_detector(tmp_path):
    """The other two configs are trained in test_all_pages.py."""
    pytest.importorskip('mmdet')
    config = next(block for block in configs(PAGE) if 'retinanet_vit-s14' in block.code)
    (tmp_path / 'my_detector.py').write_text(config.code)
    mine = tmp_path / 'data' / 'mine'
    (tmp_path / 'data' / 'pretrained').mkdir(parents=True)
    save_file(ViT('dinov2-small', embed_dims=24, num_heads=3, mlp_ratio=1).state_dict(),
              tmp_path / 'data' / 'pretrained' / 'vit-s14.safetensors')
    for seed, phase in enumerate(('train', 'val')):
        make_coco(tmp_path / phase, seed=seed)
        mine.mkdir(exist_ok=True)
        (tmp_path / phase / 'images').rename(mine / phase)
        (tmp_path / phase / 'annotations.json').rename(mine / f'{phase}.json')
    found = [words[1:] for words in commands(PAGE) if 'my_detector.py' in words]
    assert [words[0] for words in found] == ['browse', 'train', 'test', 'predict']
    with inside(tmp_path):
        for command, *words in found:
            words = [re.sub(r'epoch_\d+', 'epoch_1', word) for word in words]
            extra = named(f'my_detector_{command}') if command in ('train', 'test') else []
            main([command, *words, '--cfg-options', *NARROW, *extra])
    drawn = list((tmp_path / 'work_dirs' / 'browse').rglob('*.*'))
    assert len(drawn) == 4 and list(tmp_path.rglob('pictures/**/*.*'))
    predicted = json.loads((tmp_path / 'predictions' / 'predictions.json').read_text())
    assert predicted['complete'] and len(predicted['images']) == 4 and not predicted['skipped']
    metrics = [json.loads(path.read_text()) for path in (tmp_path / 'work_dirs').rglob('*.json')
               if 'vis_data' not in path.parts]
    assert any('coco/bbox_mAP' in each for each in metrics)
