"""Draw the loss of training runs, and print their AP.

    python benchmarks/training_curves.py OUT.png sine=work_dirs/a none+PEG=work_dirs/b

Reads what tools/train.py wrote beside its log, over all parts of a resumed run; where two parts saw
the same step, the later one counts. Prints the last loss (mean of an epoch) and every AP.
"""
from __future__ import annotations

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use('Agg')
from matplotlib import pyplot as plt  # noqa: E402


def read(folder: Path) -> tuple[dict[float, list[float]], dict[int, tuple[float, float]]]:
    """Losses of each epoch, and (AP, AP50) after epochs that were tested."""
    by_step: dict[int, tuple[int, float]] = {}
    tested: dict[int, tuple[float, float]] = {}
    for path in sorted(folder.glob('*/vis_data/scalars.json')):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            if 'loss' in row:
                by_step[row['step']] = (row['epoch'], row['loss'])
            elif 'coco/bbox_mAP' in row:
                tested[row['step']] = (row['coco/bbox_mAP'], row['coco/bbox_mAP_50'])
    epochs: dict[float, list[float]] = {}
    for epoch, loss in by_step.values():
        epochs.setdefault(epoch, []).append(loss)
    return epochs, tested


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('out')
    parser.add_argument('runs', nargs='+', metavar='NAME=WORK_DIR')
    args = parser.parse_args()
    figure, axes = plt.subplots(figsize=(5, 3), dpi=100)
    for run in args.runs:
        name, _, folder = run.partition('=')
        epochs, tested = read(Path(folder))
        if not epochs:
            raise SystemExit(f'{folder} has no losses in */vis_data/scalars.json')
        losses = {epoch: sum(values) / len(values) for epoch, values in sorted(epochs.items())}
        axes.plot(list(losses), list(losses.values()), label=name)
        last = max(losses)
        print(f'{name}: loss {losses[last]:.3f} in epoch {last}; AP, AP50 '
              + '; '.join(f'{ap:.3f}, {ap50:.3f} after {e}' for e, (ap, ap50) in tested.items()))
    axes.set(xlabel='epoch', ylabel='loss')
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(args.out)


if __name__ == '__main__':
    main()
