"""Small data sets and configs that the tests of the tools train on."""
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

CLASSES = ('square', 'disc')


class Images:
    """A data set of files that need not be there; None is an image in no file."""

    def __init__(self, paths: list[str | None], data_prefix: Any = 'data/val') -> None:
        self.paths, self.data_prefix = paths, data_prefix

    def __len__(self) -> int:
        return len(self.paths)

    def get_data_info(self, index: int) -> dict[str, Any]:
        return {'img_path': self.paths[index]}


def make_coco(root: Path, *, images: int = 4, size: int = 64, seed: int = 0,
              tall: bool = False) -> Path:
    """Writes a COCO data set of bright shapes on noise; returns its folder.

    Every second image is wider than high, so that batches are padded; with ``tall``, every third is
    higher than wide.
    """
    rng = np.random.default_rng(seed)
    (root / 'images').mkdir(parents=True)
    infos, anns = [], []
    for i in range(images):
        height, width = (size, size) if i % 2 else (size - 20, size)
        if tall and i % 3 == 2:
            height, width = size, size - 20
        pixels = rng.integers(0, 60, (height, width, 3), dtype=np.uint8)
        for category in (1, 2):
            w, h = (int(v) for v in rng.integers(14, 24, 2))
            x, y = int(rng.integers(0, width - w)), int(rng.integers(0, height - h))
            pixels[y:y + h, x:x + w, category] = 230
            anns.append(dict(id=len(anns) + 1, image_id=i + 1, category_id=category,
                             bbox=[x, y, w, h], area=w * h, iscrowd=0,
                             segmentation=[[x, y, x + w, y, x + w, y + h, x, y + h]]))
        name = f'shape_{i}.jpg'
        Image.fromarray(pixels).save(root / 'images' / name)
        infos.append(dict(id=i + 1, file_name=name, height=height, width=width))
    (root / 'annotations.json').write_text(json.dumps(dict(
        images=infos, annotations=anns,
        categories=[dict(id=i + 1, name=name) for i, name in enumerate(CLASSES)])))
    return root


def read_annotations(root: Path) -> dict:
    return json.loads((root / 'annotations.json').read_text())


def rewrite_annotations(root: Path, change: Callable[[dict], object]) -> None:
    """Change what the annotation file holds, in place."""
    content = read_annotations(root)
    change(content)
    (root / 'annotations.json').write_text(json.dumps(content))


def coco_node(root: Path, **options: Any) -> dict:
    """A description of the data set in a folder of :func:`make_coco`."""
    return {**dict(type='mmposenc.CocoDataset', data_root=str(root), ann_file='annotations.json',
                   data_prefix=dict(img='images/'), metainfo=dict(classes=CLASSES)), **options}


#: A RetinaNet with a PVT of four stages of 8 channels and one block, on a CPU in milliseconds.
DETECTOR = """
_base_ = 'mmposenc::detection/pvt/retinanet_pvt-t-peg_fpn_1x_coco.py'
model = dict(
    backbone=dict(
        arch=None, embed_dims=[8, 8, 8, 8], num_layers=[1, 1, 1, 1], num_heads=[1, 1, 1, 1],
        mlp_ratios=[1, 1, 1, 1], init_cfg=None),
    neck=dict(in_channels=[8, 8, 8, 8], out_channels=8),
    bbox_head=dict(
        num_classes=2, in_channels=8, feat_channels=8, stacked_convs=1,
        anchor_generator=dict(octave_base_scale=2)))
pipeline, test_pipeline = _base_.train_pipeline, _base_.test_pipeline
del pipeline[2]  # no Resize
test_pipeline[1]['scale'] = (64, 64)
data = dict(
    data_root='{root}', ann_file='annotations.json', data_prefix=dict(img='images/'),
    metainfo=dict(classes=('square', 'disc')))
train_dataloader = dict(
    num_workers=0, persistent_workers=False, dataset=dict(pipeline=pipeline, **data))
val_dataloader = dict(
    num_workers=0, persistent_workers=False, dataset=dict(pipeline=test_pipeline, **data))
test_dataloader = val_dataloader
val_evaluator = dict(ann_file='{root}/annotations.json')
test_evaluator = val_evaluator
train_cfg = dict(max_epochs=1)
default_hooks = dict(logger=dict(interval=1))
"""


def detector_config(path: Path, data: Path) -> Path:
    """Writes a tiny version of one of the project's detection configs, on the given data."""
    path.write_text(DETECTOR.format(root=data))
    return path


def tiny_detector(root: Path, **shapes: Any) -> Path:
    """Writes a data set to ``root/data`` and the config of a detector of it; returns the config."""
    return detector_config(root / 'tiny.py', make_coco(root / 'data', **shapes))


def make_trees(folder: Path, phases: tuple[str, ...]) -> None:
    """The layout of `mmposenc prepare trees`, with shapes in place of trees."""
    for seed, phase in enumerate(phases):
        made = read_annotations(make_coco(folder / phase, seed=seed))
        (folder / 'images').mkdir(exist_ok=True)
        (folder / phase / 'images').rename(folder / 'images' / phase)
        made['categories'] = [dict(id=1, name='tree')]
        made['annotations'] = [{**each, 'category_id': 1} for each in made['annotations']]
        (folder / 'annotations').mkdir(exist_ok=True)
        (folder / 'annotations' / f'{phase}.json').write_text(json.dumps(made))
