"""The study digits-long: models of mmposenc compare, trained in a plain loop.

Loading images one by one and mmengine's runner take three quarters of a small model's step. Here
images stay in memory and are moved as a batch. Linear layers of blocks begin with Xavier's weights:
with DeiT's 0.02, made for more than 48 channels, the first epochs teach nothing.

A call goes on where the last one was, and writes results.json with all runs, which
benchmarks/evidence.py reads.

    mmposenc prepare mnist5k
    python benchmarks/digits_long.py --encodings none learned peg configs/studies/irpe.yaml
"""
from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from mmengine.logging import MMLogger
from mmengine.optim import build_optim_wrapper
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner import set_random_seed
from torch import nn
from torch.nn import functional as F

from mmposenc import engine
from mmposenc.engine.config.parsed import ParsedConfig
from mmposenc.engine.variants.applying import with_entry
from mmposenc.engine.variants.encodings import Entry, read_entries
from mmposenc.lab.compare.running.recording import versions_and_machine

CONFIG = 'configs/classification/small/deit-micro-none_1xb32-40e_mnist5k.py'
SIDE, STD, WARM_UP = 32, 78.6, 120
SIZES = (0.75, 1.0, 1.5, 2.0, 3.0, 4.0)


def images(train: bool, factor: float = 1, scene: bool = False
           ) -> tuple[torch.Tensor, torch.Tensor]:
    """All images of a split, resized as the config does, and their digits. A ``scene`` is as large,
    but holds the digit in the size of training, at a place of its own."""
    kind, side = 'train' if train else 't10k', round(SIDE * factor)
    pixels = np.fromfile(f'data/mnist5k/{kind}-images-idx3-ubyte', np.uint8)[16:]
    digits = np.fromfile(f'data/mnist5k/{kind}-labels-idx1-ubyte', np.uint8)[8:]
    drawn = SIDE if scene else side
    resized = [cv2.resize(image, (drawn, drawn), interpolation=cv2.INTER_CUBIC)
               for image in pixels.reshape(-1, 28, 28)]
    if scene:
        corners = np.random.default_rng(0).integers(0, side - SIDE + 1, (len(resized), 2))
        resized = [np.pad(image, ((top, side - SIDE - top), (left, side - SIDE - left)))
                   for image, (top, left) in zip(resized, corners, strict=True)]
    stacked = torch.from_numpy(np.stack(resized))[:, None] / STD
    return stacked, torch.from_numpy(digits).long()


def moved(batch: torch.Tensor, scales: tuple[float, float], degrees: float = 10,
          shift: float = 0.1) -> torch.Tensor:
    """Each image turned, shifted and drawn at another size by chance."""
    angle = (2 * torch.rand(len(batch)) - 1) * math.radians(degrees)
    by = (2 * torch.rand(2, len(batch)) - 1) * 2 * shift
    size = scales[0] + (scales[1] - scales[0]) * torch.rand(len(batch))
    cos, sin = angle.cos() / size, angle.sin() / size
    rows = [torch.stack([cos, -sin, by[0]], 1), torch.stack([sin, cos, by[1]], 1)]
    grid = F.affine_grid(torch.stack(rows, 1), list(batch.shape), align_corners=False)
    return F.grid_sample(batch, grid, align_corners=False)


def accuracy(model: Any, data: tuple[torch.Tensor, torch.Tensor]) -> float:
    """Percent of the images whose digit is right."""
    model.eval()
    size = max(16, 250 * SIDE ** 2 // data[0].shape[-1] ** 2)
    with torch.inference_mode():
        told = torch.cat([model.head(model.extract_feat(part)).argmax(1)
                          for part in data[0].split(size)])
    return 100 * (told == data[1]).double().mean().item()


def train(entry: Entry, seed: int, args: argparse.Namespace, data: Any
          ) -> list[dict[str, Any]]:
    """One run, trained by the config's optimizer and schedule and tested at all sizes at the end:
    what is known of it with the larger digits, and with those of larger scenes where there are."""
    cfg = engine.load_config(CONFIG)
    cfg.model.backbone.patch_size = args.patch
    cfg = with_entry(ParsedConfig(cfg), entry)
    cfg.optim_wrapper.optimizer.update(lr=args.lr, fused=True)
    set_random_seed(seed)
    init_default_scope('mmpretrain')
    model = MODELS.build(cfg.model)
    model.init_weights()
    for name, module in model.backbone.blocks.named_modules():
        if isinstance(module, nn.Linear) and 'rel_pos_encoding' not in name:
            nn.init.xavier_uniform_(module.weight)  # 0.02 is too small for 48 channels
    optimizer = build_optim_wrapper(model, cfg.optim_wrapper).optimizer
    begin = time.process_time()
    pixels, digits = data['train']
    steps = args.epochs * (len(pixels) // args.batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(
        1, .02 + .98 * step / WARM_UP) * (.01 + .99 * (1 + math.cos(math.pi * step / steps)) / 2))
    for _ in range(args.epochs):
        for some in torch.randperm(len(pixels)).split(args.batch)[:len(pixels) // args.batch]:
            logits = model.head(model.extract_feat(moved(pixels[some], args.scales)))
            loss = F.cross_entropy(logits, digits[some])
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    seconds = time.process_time() - begin
    tests = [[] if not math.isfinite(loss.item()) else [
        {'factor': size, 'value': round(accuracy(model, tested[size]), 4)} for size in args.sizes]
        for tested in (data, data['scenes']) if tested]
    run = {'encoding': entry.name, 'seed': seed, 'status': 'finished' if tests[0] else 'diverged',
           'note': '', 'train_cpu_seconds': round(seconds, 1),
           'parameters': sum(each.numel() for each in model.parameters()),
           'test_cpu_seconds': round(time.process_time() - begin - seconds, 1)}
    return [{**run, 'tests': each} for each in tests]


def collect(out: Path, args: argparse.Namespace, entries: list[Entry]) -> dict[str, Any]:
    """The runs of a folder, as the package collects those of ``mmposenc compare``."""
    files = (out / 'runs').glob('*.json')
    runs = sorted((json.loads(path.read_text()) for path in files),
                  key=lambda run: (run['encoding'], run['seed']))
    parameters = {run['encoding']: run.pop('parameters') for run in runs}
    sizes = sorted({test['factor'] for run in runs for test in run['tests']})
    return {
        'title': out.name, 'config': CONFIG, 'task': 'classification',
        'command': f'python benchmarks/digits_long.py --encodings {" ".join(args.encodings)} '
                   f'--patch {args.patch} --scales {args.scales[0]:g} {args.scales[1]:g}',
        'metric': {'name': 'accuracy/top1', 'label': 'top-1 accuracy', 'unit': '%'},
        'sizes': [{'factor': size, 'hw': [round(SIDE * size)] * 2}
                  for size in sizes],
        'length': {'epochs': args.epochs}, 'environment': versions_and_machine(),
        'encodings': [{**entry.fields(), 'parameters': parameters[entry.name]}
                      for entry in entries if entry.name in parameters],
        'runs': runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--encodings', nargs='+', default=[])
    parser.add_argument('--seeds', type=int, default=3)
    parser.add_argument('--epochs', type=int, default=30)
    parser.add_argument('--batch', type=int, default=64)
    parser.add_argument('--lr', type=float, default=0.004)
    parser.add_argument('--scales', type=float, nargs=2, default=(1., 1.),
                        help='of digits in training')
    parser.add_argument('--patch', type=int, default=8)
    parser.add_argument('--sizes', type=float, nargs='+', default=SIZES)
    parser.add_argument('--scene', action='store_true',
                        help='tests larger images with digits of the size of training, too, into '
                        'the folder OUT-scene')
    parser.add_argument('--out', type=Path, default=Path('work_dirs/evidence/digits-long'))
    args = parser.parse_args()
    torch.set_num_threads(1)
    MMLogger.get_instance('mmengine', log_level='WARNING')
    entries = read_entries(args.encodings)
    data: dict[Any, Any] = {size: images(False, size) for size in args.sizes}
    data['train'] = images(True)
    data['scenes'] = {size: images(False, size, True) for size in args.sizes if args.scene}
    outs = [args.out, args.out.with_name(f'{args.out.name}-scene')][:1 + args.scene]
    for out in outs:
        (out / 'runs').mkdir(parents=True, exist_ok=True)
    for seed in range(args.seeds):
        for entry in entries:
            path = args.out / 'runs' / f'{entry.slug}-{seed}.json'
            if path.is_file():
                continue
            for out, run in zip(outs, train(entry, seed, args, data), strict=True):
                (out / 'runs' / path.name).write_text(json.dumps(run))
                print(out.name, entry.name, seed, run['train_cpu_seconds'],
                      run['test_cpu_seconds'], [each['value'] for each in run['tests']], flush=True)
    for out in outs:
        (out / 'results.json').write_text(json.dumps(collect(out, args, entries)))


if __name__ == '__main__':
    main()
