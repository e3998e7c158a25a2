"""What a pretrained ViT-S/14 owes to its position encoding, and gains by others: CamVid, 3 sizes.

The table of the file is resized to the image, left out, replaced, or joined by another encoding.
Trained is one of

- ``head``: a linear head alone, on features that are computed once; nothing for encodings with
  parameters, which start at zero and so change nothing;
- ``encoding``: from there on the head and the parameters of the encoding (PEG after block 0, iRPE
  in all blocks) while the rest is frozen; for the other encodings the head alone, for as long;
- ``last4``: from the same heads on also blocks 8 to 11, on the kept output of the blocks before.
  PEG then stands behind block 7 and iRPE in the four blocks.

All start from the head of their seed and see the same batches, so that differences by seed are
those of the encoding. Of several rates (``--lr``), the one that is best on the last sixth of
the training images, not trained on for that and seed 0, is taken. Every run is a line of
rows.jsonl in the work directory and is not made again.

    python tools/prepare_data.py pretrained
    python benchmarks/pretrained.py --data-root CAMVID --size 168 224 --trained head encoding last4
    python benchmarks/pretrained.py --data-root CAMVID --encodings table --seeds 0 --lr 1e-3 \\
        --head stride7 --steps 455
    python benchmarks/pretrained.py --size 168 224 --report-only --table table.md
"""
from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from pretrained_parts import (
    CLASSES,
    ENCODINGS,
    HEADS,
    VIT_S14,
    Model,
    build,
    fit,
    images,
    ious,
    keep,
    labels,
)
from torch import Tensor

from mmposenc.comparison.exports import markdown_rows

ROOT = Path(__file__).resolve().parents[1]
SCALES = (1.0, 1.5, 2.0)
#: What is trained -> rates to choose from: of the head, of the encoding, of blocks. Encodings learn
#: ten times as fast as blocks, and a head that is fitted already at HEAD_RATE.
RATES = {'head': (0.005,), 'encoding': (0.001, 0.005), 'last4': (0.0001,)}
HEAD_RATE = 0.0005


class Study:
    """One size of training images, and the rows that were found for it.

    Args:
        args: the command line's.
        model: the backbone's arguments.
    """

    def __init__(self, args: argparse.Namespace, model: dict[str, Any]) -> None:
        self.args, self.model, self.patch = args, model, model['patch_size']
        self.rows_file = args.work_dir / 'rows.jsonl'
        self.rows = ([json.loads(line) for line in self.rows_file.read_text().splitlines()]
                     if self.rows_file.is_file() else [])
        self.folder = args.work_dir / '{}x{}'.format(*args.size)

    def kept(self, name: str, start: int, split: str, scale: float) -> Tensor:
        """What the frozen blocks make of a split's images."""
        fixed = ENCODINGS[name].fixed if start else 'patches'
        hw = (round(self.args.size[0] * scale), round(self.args.size[1] * scale))
        return keep(
            lambda: build(ENCODINGS[name].fixed, start, self.args.weights, self.model),
            images(self.args.data_root / 'images' / split, hw, self.every(split)), start,
            self.folder / f'{fixed}_{start}_{split}{scale:g}_every{self.every(split)}.pt')

    def labels(self, split: str) -> Tensor:
        return labels(self.args.data_root / 'annotations' / split, self.every(split))

    def every(self, split: str) -> int:
        return 1 if split == 'training' else self.args.test_every

    def grid(self, scale: float) -> tuple[int, int]:
        height, width = (round(side * scale) // self.patch for side in self.args.size)
        return height, width

    def steps(self, trained: str, holdout: bool) -> int:
        if trained == 'head':
            return self.args.steps
        return self.args.further_steps // 2 if holdout else self.args.further_steps

    def key(self, name: str, trained: str, seed: int, rate: float, holdout: bool
            ) -> dict[str, Any]:
        """What tells one run from another."""
        return dict(size=list(self.args.size), head=self.args.head, encoding=name, trained=trained,
                    steps=self.steps(trained, holdout), seed=seed, rate=rate, holdout=holdout,
                    test_every=self.args.test_every)

    def found(self, **wanted: Any) -> list[dict[str, Any]]:
        return [row for row in self.rows
                if all(row[name] == value for name, value in wanted.items())]

    def best_rate(self, name: str, trained: str) -> float:
        """The rate with the best mIoU on held-out training images; a single one is not tried."""
        rates = self.args.lr if self.args.lr and trained in self.args.trained else RATES[trained]
        if len(rates) == 1:
            return rates[0]
        return max(rates, key=lambda rate: mean_iou(self.run(name, trained, 0, rate, True), 1.0))

    def run(self, name: str, trained: str, seed: int, rate: float, holdout: bool
            ) -> dict[str, Any]:
        """Trains and tests a model, or reads what was found before."""
        key = self.key(name, trained, seed, rate, holdout)
        if rows := self.found(**key):
            return rows[0]
        start = {'head': 12, 'last4': 8,
                 'encoding': 0 if ENCODINGS[name].has_parameters else 12}[trained]
        x, y = self.kept(name, start, 'training', 1.0), self.labels('training')
        cut = len(x) * 5 // 6 if holdout else len(x)
        model = self.begin(name, trained, seed, start, holdout)
        began = time.process_time()
        fit(model, x[:cut], y[:cut], self.grid(1), self.patch, seed=seed, steps=key['steps'],
            rates=dict(head=rate if trained == 'head' else HEAD_RATE, blocks=rate,
                       encoding=rate if trained == 'encoding' else 10 * rate))
        seconds = time.process_time() - began
        if trained == 'head':
            torch.save(model.state_dict(), self.head_file(name, seed, rate, holdout))
        if holdout:
            found = {'1': ious(model, x[cut:], y[cut:], self.grid(1), self.patch)}
        else:
            found = self.test(model, name, start)
        row = dict(key, train_cpu_seconds=round(seconds, 1), ious=found)
        with self.rows_file.open('a') as file:
            file.write(json.dumps(row) + '\n')
        self.rows.append(row)
        print(trained, name, f'seed {seed} rate {rate:g}', 'holdout' if holdout else '',
              [f'{sum(each) / CLASSES:.1f}' for each in found.values()], f'{seconds:.0f} CPU s',
              flush=True)
        return row

    def begin(self, name: str, trained: str, seed: int, start: int, holdout: bool) -> Model:
        """A model before training: with a new head, or with the one that was fitted alone."""
        backbone = build(name, start, self.args.weights, self.model) if start < 12 else None
        torch.manual_seed(seed)  # a head is the same whatever is behind it
        model = Model(backbone, start, self.model['embed_dims'], HEADS[self.args.head])
        if trained != 'head':
            model.load_state_dict(self.head(ENCODINGS[name].fixed, seed, holdout), strict=False)
        return model

    def test(self, model: Model, name: str, start: int) -> dict[str, list[float]]:
        """IoU of every class at every size."""
        y = self.labels('validation')
        return {f'{scale:g}': ious(model, self.kept(name, start, 'validation', scale), y,
                                   self.grid(scale), self.patch) for scale in SCALES}

    def head_file(self, name: str, seed: int, rate: float, holdout: bool) -> Path:
        end = '_holdout' if holdout else ''
        return self.folder / f'{name}_{self.args.head}_{self.args.steps}_{rate:g}_{seed}{end}.pth'

    def head(self, name: str, seed: int, holdout: bool) -> dict[str, Tensor]:
        """The fitted head that training more than a head begins with."""
        rate = self.best_rate(name, 'head')
        self.run(name, 'head', seed, rate, holdout)
        return torch.load(self.head_file(name, seed, rate, holdout))

    def table(self, trained: str) -> str:
        """Results as markdown: means and ranges over the seeds, and what each seed has more than
        with the table and the same part trained."""
        lines = [['Positions', 'Rate', 'Seeds', *(f'mIoU {scale:g}x' for scale in SCALES),
                  *(f'less the table {scale:g}x' for scale in SCALES), 'CPU s']]
        for name, encoding in ENCODINGS.items():
            rows = self.found(size=list(self.args.size), head=self.args.head, trained=trained,
                              encoding=name, steps=self.steps(trained, False), holdout=False,
                              test_every=self.args.test_every)
            for rate in sorted({row['rate'] for row in rows}):
                runs = [row for row in rows if row['rate'] == rate]
                lines.append([encoding.title, f'{rate:g}', str(len(runs)),
                              *(cell([mean_iou(row, scale) for row in runs]) for scale in SCALES),
                              *(cell(self.gains(runs, scale), '+') for scale in SCALES),
                              f"{sum(row['train_cpu_seconds'] for row in runs) / len(runs):.0f}"])
        return markdown_rows(lines)

    def gains(self, runs: list[dict[str, Any]], scale: float) -> list[float]:
        """Of each seed, the mIoU less that with the table, where that was run."""
        gains = []
        for row in runs:
            same = {name: row[name] for name in (
                'size', 'head', 'trained', 'steps', 'seed', 'test_every')}
            tables = self.found(**same, encoding='table', holdout=False)
            if tables and row['encoding'] != 'table':
                # With the rate of its own where each has one.
                other = max(tables, key=lambda each: (each['rate'] == row['rate'],
                                                      mean_iou(each, 1.0)))
                gains.append(mean_iou(row, scale) - mean_iou(other, scale))
        return gains


def mean_iou(row: dict[str, Any], scale: float) -> float:
    return sum(row['ious'][f'{scale:g}']) / CLASSES


def cell(values: list[float], sign: str = '') -> str:
    """Mean and, of several values, their range."""
    if not values:
        return ''
    text = f'{sum(values) / len(values):{sign}.1f}'
    return text + (f' ({min(values):{sign}.1f} to {max(values):{sign}.1f})'
                   if len(values) > 1 else '')


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--encodings', nargs='+', choices=ENCODINGS,
                        help='all of them')
    parser.add_argument('--trained', nargs='+', choices=RATES, default=['head'])
    parser.add_argument('--size', nargs=2, type=int, default=[252, 336],
                        help='height and width of training images, whole patches also at 1.5x')
    parser.add_argument('--seeds', nargs='+', type=int, default=[0, 1, 2])
    parser.add_argument('--data-root', type=Path, default=ROOT / 'data' / 'camvid')
    parser.add_argument('--weights', type=Path,
                        default=ROOT / 'data' / 'pretrained' / 'vit-s14.safetensors')
    parser.add_argument('--work-dir', type=Path, default=ROOT / 'work_dirs' / 'pretrained')
    parser.add_argument('--head', choices=HEADS, default='linear')
    parser.add_argument('--steps', type=int, default=910, help='of training a head alone')
    parser.add_argument('--further-steps', type=int, default=122,
                        help='of training more from there; half of them where rates are tried')
    parser.add_argument('--test-every', type=int, default=1,
                        help='2 tests on every second image, for half the time')
    parser.add_argument('--lr', type=float, nargs='+', help='rates to choose from')
    parser.add_argument('--report-only', action='store_true', help='train nothing')
    parser.add_argument('--table', type=Path, help='write the tables here, else only print them')
    return parser.parse_args(argv)


def main(argv: list[str] | None = None, model: dict[str, Any] = VIT_S14) -> None:
    args = parse_args(argv)
    args.work_dir.mkdir(parents=True, exist_ok=True)
    study = Study(args, model)
    for trained in args.trained:
        for name in [] if args.report_only else args.encodings or ENCODINGS:
            if trained == 'head' and ENCODINGS[name].has_parameters:
                continue  # they start at zero: the same as without
            for seed in args.seeds:
                study.run(name, trained, seed, study.best_rate(name, trained), False)
    text = '\n'.join(f'{trained}\n\n{study.table(trained)}' for trained in args.trained)
    print(text)
    if args.table:
        args.table.write_text(text)


if __name__ == '__main__':
    main()
