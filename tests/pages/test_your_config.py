"""docs/your-config.md: from pictures to a tested model, with its own commands on tiny data."""
from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from running import Block, commands, configs, inside, run_page
from safetensors.torch import save_file
from scripts import named
from tinydata import make_coco, read_annotations

from mmposenc.backbones import ViT
from mmposenc.commands import main

PAGE = 'docs/your-config.md'
#: A ViT-S/14 with 24 channels, one epoch, and one process.
NARROW = ['model.backbone.embed_dims=24', 'model.backbone.num_heads=3',
          'model.backbone.mlp_ratio=1', 'train_dataloader.num_workers=0',
          'val_dataloader.num_workers=0', 'test_dataloader.num_workers=0',
          'train_dataloader.batch_size=2', 'default_hooks.logger.interval=1',
          'train_cfg.max_epochs=1', 'train_cfg.val_interval=1']


def recipe(name: str, folder: Path, *options: str) -> dict[str, list[str]]:
    """Writes the config of a recipe and narrow weights into the folder; its commands by name."""
    config = next(block for block in configs(PAGE) if mentions(block, name))
    assert config.code.count('\n') < 40
    (folder / f'{name}.py').write_text(config.code)
    weights = ViT('dinov2-small', embed_dims=24, num_heads=3, mlp_ratio=1).state_dict()
    (folder / 'data' / 'pretrained').mkdir(parents=True)
    save_file(weights, folder / 'data' / 'pretrained' / 'vit-s14.safetensors')
    found = {words[1]: words[2:] for words in commands(PAGE) if f'{name}.py' in words}
    assert list(found) == ['browse', 'train', 'test', 'predict']
    options = ('--cfg-options', *NARROW, *options)
    return {command: [*(re.sub(r'epoch_\d+', 'epoch_1', word) for word in words), *options]
            for command, words in found.items()}


def mentions(block: Block, name: str) -> bool:
    return {'my_detector': 'retinanet_vit-s14', 'my_segmentor': 'linear_vit-s14',
            'my_classifier': 'imagenet.py'}[name] in block.code


def run(folder: Path, found: dict[str, list[str]], name: str) -> None:
    with inside(folder):
        for command, words in found.items():
            extra = named(f'{name}_{command}') if command in ('train', 'test') else []
            main([command, *words, *extra])
    assert len(list((folder / 'work_dirs' / 'browse').rglob('*.jpg'))) + len(
        list((folder / 'work_dirs' / 'browse').rglob('*.png'))) == 4
    assert list(folder.rglob('pictures/**/*.*'))
    predicted = json.loads((folder / 'predictions' / 'predictions.json').read_text())
    assert predicted['complete'] and len(predicted['images']) == 4 and not predicted['skipped']


def measured(folder: Path) -> set[str]:
    """Names of what training and testing wrote, all of it finite numbers."""
    lines = [json.loads(line) for path in folder.rglob('*.json') if 'vis_data' not in path.parts
             for line in path.read_text().splitlines()]
    assert all(np.isfinite(value) for line in lines for value in line.values()
               if isinstance(value, float))
    return {name for line in lines for name in line}


def shapes(folder: Path, images: int, seed: int) -> dict:
    """Pictures and boxes of squares; the annotations."""
    return read_annotations(make_coco(folder, images=images, seed=seed))


def test_the_page_runs(tmp_path):
    names = run_page(PAGE, tmp_path)
    assert names['model']['head']['num_classes'] == 2


@pytest.mark.slow
def test_detection(tmp_path):
    found = recipe('my_detector', tmp_path, 'model.neck.in_channels=24,24,24',
                   'model.neck.out_channels=8', 'model.bbox_head.in_channels=8',
                   'model.bbox_head.feat_channels=8', 'model.bbox_head.norm_cfg.num_groups=2',
                   'train_dataloader.dataset.dataset.pipeline.2.scale=(112,112)',
                   'val_dataloader.dataset.pipeline.1.scale=(112,112)',
                   'model.test_cfg.score_thr=0.0', 'model.test_cfg.nms_pre=20',
                   'model.test_cfg.max_per_img=5',
                   'test_dataloader.dataset.pipeline.1.scale=(112,112)')
    mine = tmp_path / 'data' / 'mine'
    for seed, phase in enumerate(('train', 'val')):
        shapes(tmp_path / phase, images=4, seed=seed)
        mine.mkdir(exist_ok=True)
        (tmp_path / phase / 'images').rename(mine / phase)
        (tmp_path / phase / 'annotations.json').rename(mine / f'{phase}.json')
    run(tmp_path, found, 'my_detector')
    assert 'coco/bbox_mAP' in measured(tmp_path / 'work_dirs' / 'my_detector')


@pytest.mark.slow
def test_segmentation(tmp_path):
    found = recipe('my_segmentor', tmp_path, 'model.neck.in_channels=24,24,24,24',
                   'model.decode_head.in_channels=96', 'model.decode_head.channels=96',
                   'train_dataloader.dataset.pipeline.2.scale=(112,112)')
    mine = tmp_path / 'data' / 'mine'
    for seed, phase in enumerate(('training', 'validation')):
        made = shapes(tmp_path / phase, images=4, seed=seed)
        (mine / 'images').mkdir(parents=True, exist_ok=True)
        (tmp_path / phase / 'images').rename(mine / 'images' / phase)
        (mine / 'annotations' / phase).mkdir(parents=True)
        for info in made['images']:
            labels = np.zeros((info['height'], info['width']), dtype=np.uint8)
            for one in made['annotations']:
                if one['image_id'] == info['id']:
                    x, y, w, h = one['bbox']
                    labels[y:y + h, x:x + w] = one['category_id']
            Image.fromarray(labels).save(
                mine / 'annotations' / phase / f"{Path(info['file_name']).stem}.png")
    run(tmp_path, found, 'my_segmentor')
    assert 'mIoU' in measured(tmp_path / 'work_dirs' / 'my_segmentor')


@pytest.mark.slow
def test_classification(tmp_path):
    found = recipe('my_classifier', tmp_path, 'model.head.in_channels=24')
    rng = np.random.default_rng(0)
    for phase in ('train', 'val'):
        for value, name in ((60, 'dark'), (220, 'light')):
            folder = tmp_path / 'data' / 'mine' / phase / name
            folder.mkdir(parents=True)
            for i in range(2):
                pixels = rng.integers(value - 30, value + 30, (40, 50, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f'{i}.jpg')
    run(tmp_path, found, 'my_classifier')
    assert 'accuracy/top1' in measured(tmp_path / 'work_dirs' / 'my_classifier')


pytest.importorskip('mmdet')
