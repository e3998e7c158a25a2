"""mIoU at sizes a model was not trained at: CamVid, PVT-micro with Semantic FPN.

Trains with every encoding and seed (what tools/train.py does), tests the same weights at several
image sizes (what tools/test.py does; labels are compared at full size), and writes a table and a
picture. A run that is finished is not repeated and an interrupted one is continued, so the work
can be split over several calls.

    python benchmarks/segmentation.py --data-root CAMVID [--encodings none peg] [--seeds 0 1 2]
    python benchmarks/segmentation.py --report-only --table table.md --plot camvid.png
"""
from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from seeds import (
    add_options,
    cell,
    given_options,
    loader,
    markdown,
    plot_scales,
    seconds_cell,
    train_once,
)

import mmposenc  # noqa: F401  (before anything that needs compiled operators)
from mmposenc import engine

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / 'configs' / 'segmentation' / 'small'
ENCODINGS = {'none': 'none', 'learned': 'learned table, resized', 'peg': 'PEG',
             'cp': 'ContextPool', 'cp-peg': 'PEG, then ContextPool',
             'cp-every': 'ContextPool, narrow, every block',
             'cp-every-fixed': 'the same, sizes fixed',
             'cp-every-uniform': 'the same, weights uniform'}
SCALES = (1.0, 1.5)
RESULT = 'miou.json'


def run(config: Path, seed: int, work_dir: Path, options: dict[str, Any]) -> dict:
    """Trains one model and tests it at every size; what came out, also as ``RESULT``."""
    folder = work_dir / f'{config.stem}_seed{seed}'
    load = loader(config, folder, seed, options)
    checkpoint, about = train_once(load)
    metrics = {}
    for scale in SCALES:
        cfg = load(f'test{scale:g}')
        resize = next(step for step in cfg.test_dataloader.dataset.pipeline
                      if step['type'] == 'Resize')
        resize.scale = tuple(round(side * scale) for side in resize.scale)
        found = engine.test(cfg, str(checkpoint))
        metrics[f'{scale:g}'] = {key: float(found[key]) for key in ('mIoU', 'mAcc', 'aAcc')}
    result = dict(seed=seed, **about, metrics=metrics)
    (folder / RESULT).write_text(json.dumps(result, indent=1))
    return result


def collect(work_dir: Path) -> dict[str, list[dict]]:
    """encoding -> finished runs."""
    found = {}
    for encoding in ENCODINGS:
        paths = sorted(work_dir.glob(f'*pvt-micro-{encoding}_camvid_seed*/{RESULT}'))
        if paths:
            found[encoding] = [json.loads(path.read_text()) for path in paths]
    return found


def values(runs: list[dict], scale: float, metric: str = 'mIoU') -> list[float]:
    return [each['metrics'][f'{scale:g}'][metric] for each in runs]


def table(found: dict[str, list[dict]]) -> str:
    """The results as markdown: mean and standard deviation over the seeds."""
    lines = [['Encoding', 'Parameters', 'Seeds',
              *(f'mIoU {scale:g}x' + (' (trained)' if scale == 1 else '') for scale in SCALES),
              'change', 'pixel accuracy 1x', 'Training, CPU s']]
    for encoding, runs in found.items():
        pairs = zip(values(runs, SCALES[0]), values(runs, SCALES[-1]), strict=True)
        lines.append([ENCODINGS[encoding], f"{runs[0]['parameters']:,}", str(len(runs)),
                      *(cell(values(runs, scale)) for scale in SCALES),
                      cell([after - before for before, after in pairs]),
                      cell(values(runs, 1.0, 'aAcc')), seconds_cell(runs)])
    return markdown(lines, text_columns=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--encodings', nargs='+', choices=ENCODINGS, default=list(ENCODINGS))
    parser.add_argument('--seeds', nargs='+', type=int, default=[0, 1, 2])
    add_options(parser, str(ROOT / 'data' / 'camvid'))
    parser.add_argument('--work-dir', type=Path, default=ROOT / 'work_dirs' / 'segmentation')
    parser.add_argument('--report-only', action='store_true', help='train nothing')
    parser.add_argument('--table', type=Path, help='write the table here, else only print it')
    parser.add_argument('--plot', type=Path, help='draw the table as a PNG')
    args = parser.parse_args()
    for seed in [] if args.report_only else args.seeds:
        for encoding in args.encodings:
            config = CONFIGS / f'sem_fpn_pvt-micro-{encoding}_camvid.py'
            if not (args.work_dir / f'{config.stem}_seed{seed}' / RESULT).is_file():
                run(config, seed, args.work_dir, given_options(args))
    found = collect(args.work_dir)
    text = table(found)
    print(text)
    if args.table:
        args.table.write_text(text)
    if args.plot and found:
        lines = {ENCODINGS[encoding]: [values(runs, scale) for scale in SCALES]
                 for encoding, runs in found.items()}
        plot_scales({'CamVid, Semantic FPN on PVT-micro': lines}, SCALES, args.plot,
                    xlabel='image side / side in training', ylabel='mIoU, %',
                    colors={label: f'C{i}' for i, label in enumerate(ENCODINGS.values())})


if __name__ == '__main__':
    main()
