"""Accuracy at sizes a model was not trained at: CPVT's Table 2 at small scale.

Trains every micro model with every encoding and seed (what tools/train.py does), tests the same
weights at several image sizes (what tools/test.py does), and writes a table and a picture. A run
that is finished is not repeated and an interrupted one is continued, so the work can be split over
several calls.

    python tools/prepare_data.py mnist5k
    python benchmarks/extrapolation.py [--models deit] [--encodings none peg] [--seeds 0 1 2]
    python benchmarks/extrapolation.py --report-only --table table.md --plot extrapolation.png
"""
from __future__ import annotations

import argparse
import json
from collections import defaultdict
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
CONFIGS = ROOT / 'configs' / 'classification' / 'small'
ENCODINGS = {'none': 'none', 'learned': 'learned table, resized', 'sincos': 'sin-cos',
             'shaw': 'Shaw, K = 2', 'irpe-k': 'iRPE on keys', 'peg': 'PEG', 'cp': 'ContextPool',
             'cp-peg': 'PEG and ContextPool', 'cp-every': 'ContextPool, narrow, every block',
             'cp-every-fixed': 'the same, sizes fixed',
             'cp-every-uniform': 'the same, weights uniform'}
MODELS = {'deit': 'DeiT-micro', 'pvt': 'PVT-micro'}
SCALES = (0.75, 1.0, 1.5, 2.0)
RESULT = 'accuracy.json'


def run(config: Path, seed: int, work_dir: Path, options: dict[str, Any] | None = None) -> dict:
    """Trains one model and tests it at every size; what came out, also as ``RESULT``."""
    folder = work_dir / f'{config.stem}_seed{seed}'
    load = loader(config, folder, seed, options)
    checkpoint, about = train_once(load)
    accuracy = {}
    for scale in SCALES:
        cfg = load(f'test{scale:g}')
        resize = cfg.test_dataloader.dataset.pipeline[0]
        resize.scale = round(resize.scale * scale)
        accuracy[f'{scale:g}'] = engine.test(cfg, str(checkpoint))['accuracy/top1']
    result = dict(seed=seed, **about, accuracy=accuracy)
    (folder / RESULT).write_text(json.dumps(result, indent=1))
    return result


def collect(work_dir: Path, data: str) -> dict[str, dict[str, list[dict]]]:
    """model -> encoding -> finished runs."""
    found: dict[str, dict[str, list[dict]]] = defaultdict(dict)
    for model in MODELS:
        for encoding in ENCODINGS:
            paths = sorted(work_dir.glob(f'{model}-micro-{encoding}_{data}_seed*/{RESULT}'))
            if paths:
                found[model][encoding] = [json.loads(path.read_text()) for path in paths]
    return found


def values(runs: list[dict], scale: float) -> list[float]:
    return [each['accuracy'][f'{scale:g}'] for each in runs]


def table(found: dict[str, dict[str, list[dict]]]) -> str:
    """The results as markdown: top-1 accuracy, mean and standard deviation over the seeds."""
    lines = [['Model', 'Encoding', 'Parameters', 'Seeds',
              *(f'{scale:g}x' + (' (trained)' if scale == 1 else '') for scale in SCALES),
              'Training, CPU s']]
    for model, encodings in found.items():
        for encoding, runs in encodings.items():
            lines.append([MODELS[model], ENCODINGS[encoding], f"{runs[0]['parameters']:,}",
                          str(len(runs)), *(cell(values(runs, scale)) for scale in SCALES),
                          seconds_cell(runs)])
    return markdown(lines, text_columns=2)


def plot(found: dict[str, dict[str, list[dict]]], path: Path) -> None:
    """One panel a model, one line an encoding, bars of one standard deviation."""
    panels = {MODELS[model]: {ENCODINGS[encoding]: [values(runs, scale) for scale in SCALES]
                              for encoding, runs in encodings.items()}
              for model, encodings in found.items()}
    plot_scales(panels, SCALES, path, xlabel='image side / side in training',
                ylabel='top-1 accuracy, %',
                colors={label: f'C{i}' for i, label in enumerate(ENCODINGS.values())})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--models', nargs='+', choices=MODELS, default=list(MODELS))
    parser.add_argument('--encodings', nargs='+', choices=ENCODINGS, default=list(ENCODINGS))
    parser.add_argument('--seeds', nargs='+', type=int, default=[0, 1, 2])
    parser.add_argument('--data', choices=('mnist5k', 'fashion'), default='mnist5k')
    add_options(parser)
    parser.add_argument('--work-dir', type=Path, default=ROOT / 'work_dirs' / 'extrapolation')
    parser.add_argument('--report-only', action='store_true', help='train nothing')
    parser.add_argument('--table', type=Path, help='write the table here, else only print it')
    parser.add_argument('--plot', type=Path, help='draw the table as a PNG')
    args = parser.parse_args()
    for seed in [] if args.report_only else args.seeds:
        for model in args.models:
            for encoding in args.encodings:
                config = CONFIGS / f'{model}-micro-{encoding}_{args.data}.py'
                done = args.work_dir / f'{config.stem}_seed{seed}' / RESULT
                if config.is_file() and not done.is_file():
                    run(config, seed, args.work_dir, given_options(args))
    found = collect(args.work_dir, args.data)
    text = table(found)
    print(text)
    if args.table:
        args.table.write_text(text)
    if args.plot and found:
        plot(found, args.plot)


if __name__ == '__main__':
    main()
