"""Train detectors on the maps of a frozen backbone, which are computed once.

The frozen ViT takes most of the time of a step. So the training pipeline draws some fixed views of
each image; their maps, in bfloat16, are the data of all seeds and all configs. (The configs by
themselves draw new views in every epoch.) An epoch sees every view once; schedule, optimizer and
averaged weights are those of a config. Tests run the whole model in float32. A call goes on where
the last one was, and prints the table of all runs.

    mmposenc prepare trees && mmposenc prepare pretrained
    python benchmarks/frozen_backbone.py configs/detection/small/rt-detr_vit-s14_1xb4-10e_trees.py
"""
from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.registry import init_default_scope
from mmengine.runner import set_random_seed
from torch.utils.data import DataLoader

from mmposenc import engine
from mmposenc.registry import DATASETS, MODELS

BATCH = 4
#: Names of the test sets: annotations/NAME.json and images/NAME/.
TESTS = ('val_block', 'val')
METRICS = ('bbox_mAP', 'bbox_mAP_50', 'bbox_mAP_75')


@torch.no_grad()
def stored_views(cfg: Config, views: int) -> list[dict[str, Any]]:
    """The maps of some views of each training image, and the image's boxes."""
    set_random_seed(0)
    data_set = DATASETS.build(cfg.train_dataloader.dataset.dataset)
    preprocessor = MODELS.build(cfg.model.data_preprocessor)
    backbone = MODELS.build(cfg.model.backbone)
    backbone.init_weights()
    backbone.eval()
    stored = []
    for index in [number for _ in range(views) for number in range(len(data_set))]:
        batch = preprocessor(pseudo_collate([data_set[index]]), training=True)
        with torch.autocast('cpu', torch.bfloat16):
            maps = backbone(batch['inputs'])
        stored.append(dict(inputs=[each[0].bfloat16() for each in maps],
                           data_samples=batch['data_samples'][0]))
    return stored


def train(cfg: Config, stored: list[dict[str, Any]]) -> str:
    """Train what follows the backbone; returns the file of its weights."""
    runner = engine.build_runner(cfg)
    runner._train_dataloader = DataLoader(stored, BATCH, shuffle=True, drop_last=True,
                                          collate_fn=pseudo_collate)
    model = runner.model
    model.data_preprocessor.forward = lambda batch, training: dict(
        batch, inputs=[torch.stack(each).float() for each in batch['inputs']])
    model.extract_feat = lambda maps: model.neck(maps)  # A module would be saved twice.
    runner.train()
    return f'{cfg.work_dir}/epoch_{cfg.train_cfg.max_epochs}.pth'


def test(cfg: Config, weights: str) -> dict[str, dict[str, float]]:
    """COCO's AP on each test set."""
    values = {}
    for name in TESTS:
        changed = Config(cfg.to_dict())
        changed.test_dataloader.dataset.update(ann_file=f'annotations/{name}.json',
                                               data_prefix=dict(img=f'images/{name}/'))
        changed.test_evaluator.ann_file = f'{cfg.data_root}annotations/{name}.json'
        metrics = engine.test(changed, weights)
        values[name] = {each: metrics[f'coco/{each}'] for each in METRICS}
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('configs', nargs='+', help='with one backbone and one training pipeline')
    parser.add_argument('--views', type=int, default=8, help='of each training image')
    parser.add_argument('--epochs', type=int, help="default: the config's")
    parser.add_argument('--seeds', type=int, default=3)
    parser.add_argument('--out', type=Path, default=Path('work_dirs/frozen-backbone'))
    args = parser.parse_args()
    torch.set_num_threads(1)
    init_default_scope('mmdet')
    stored: list[dict[str, Any]] = []
    for seed in range(args.seeds):
        for path in args.configs:
            cfg = engine.load_config(path)
            cfg.work_dir = str(args.out / Path(path).stem / str(seed))
            results = Path(cfg.work_dir) / 'results.json'
            if not results.is_file():
                stored = stored or stored_views(cfg, args.views)
                cfg.randomness.seed = seed
                cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
                if args.epochs:
                    cfg.train_cfg.max_epochs = args.epochs
                    cfg.param_scheduler[-1].update(end=args.epochs, T_max=args.epochs)
                start = time.process_time()
                weights = train(cfg, stored)
                seconds = time.process_time() - start
                results.write_text(json.dumps(dict(test(cfg, weights), seconds=seconds)))
            print(path, seed, results.read_text(), flush=True)


if __name__ == '__main__':
    main()
