"""Download a small data set, train a small model, test it, and draw its predictions.

    mmposenc quickstart [detection|segmentation|pretrained] [--seed N]

detection     (the default) tree crowns: RetinaNet on PVT + PEG from random weights, tested on a
              block of the training plots and on another plot; COCO AP
segmentation  nuclei: Semantic FPN on PVT + PEG from random weights, tested on a strip of the
              image, with and without test-time augmentation (sizes and flips); mIoU
pretrained    both data sets with a frozen, pretrained ViT-S/14, whose features are computed once:
              RetinaNet for the trees, a linear head for the nuclei; downloads 90 MB more

Data go to data/, results to work_dirs/, both in the current folder. Pictures show ground truth on
the left and predictions on the right. Stop it with Ctrl-C; the same command resumes.
"""
from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ..terminal.messages import Parser, reporting_errors
from ..terminal.options import SEED


class Part(NamedTuple):
    """A training and its tests.

    Attributes:
        data: a word of ``mmposenc prepare``, also the folder of the results.
        config: of the training.
        tests: for each row of the table of scores, the folder of the test and its config.
    """

    data: str
    config: str
    tests: dict[str, tuple[str, str]]


def _trees_part(stem: str, training: str) -> Part:
    stem = f'mmposenc::detection/small/{stem}'
    return Part('trees', f'{stem}{training}.py', {
        'held-out block of the training plots': ('block', f'{stem}-block.py'),
        'a different plot': ('other_plot', f'{stem}.py')})


def _nuclei_part(stem: str) -> Part:
    config = f'mmposenc::segmentation/small/{stem}.py'
    return Part('nuclei', config, {'held-out strip': ('strip', config)})


TASKS = {
    'detection': [_trees_part('retinanet_pvt-micro-peg_fpn_1xb4-12e_trees', '-quick')],
    'segmentation': [_nuclei_part('fpn_pvt-micro-peg_1xb4-10e_nuclei-128x128')],
    'pretrained': [_trees_part('retinanet_vit-s14_sfp_1xb4-10e_trees', ''),
                   _nuclei_part('linear_vit-s14_1xb4-10e_nuclei-448x448')],
}
#: Title, key and format of the columns of the table of scores: COCO's metrics of boxes, and those
#: of segmentation in percent.
COLUMNS = (('AP', 'coco/bbox_mAP', '.3f'), ('AP50', 'coco/bbox_mAP_50', '.3f'),
           ('AP75', 'coco/bbox_mAP_75', '.3f'), ('mIoU', 'mIoU', '.2f'), ('mAcc', 'mAcc', '.2f'),
           ('aAcc', 'aAcc', '.2f'))


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(__doc__, prog='mmposenc quickstart')
    parser.add_argument('task', nargs='?', default='detection', choices=TASKS)
    parser.add_argument('--seed', type=SEED, metavar='N', help='seed of the training')
    parser.add_argument('--out', type=Path, metavar='FOLDER', help='folder of results (default: '
                        'work_dirs/quickstart, followed by the task and the seed)')
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    with reporting_errors(args):
        from ..dependencies import require
        from . import prepare
        require('mmposenc quickstart', ('mmengine', 'mmcv', 'mmdet', 'mmseg'))
        task = '' if args.task == 'detection' else f'-{args.task}'
        seed = '' if args.seed is None else f'-seed{args.seed}'
        out = args.out or Path('work_dirs', f'quickstart{task}{seed}')
        parts = TASKS[args.task]
        say('1/3 data')
        for name in [*(part.data for part in parts), *['pretrained'] * (len(parts) > 1)]:
            prepare.main([name])
        for part in parts:
            work = out / part.data if len(parts) > 1 else out
            train_and_test(part, work, args.seed)
            scores = metrics_table({name: work / f'test_{folder}'
                                    for name, (folder, _) in part.tests.items()})
            print(scores, f'pictures: {work}/pictures (left: ground truth, right: predictions)',
                  sep='\n', flush=True)


def say(text: str) -> None:
    print(f'quickstart: {text}', flush=True)


def train_and_test(part: Part, work: Path, seed: int | None) -> None:
    """Train unless the training is complete, and run the tests."""
    say('2/3 training (stop it with Ctrl-C; the same command resumes)')
    if (work / 'trained').is_file():
        print(f'already trained; delete {work} to train again', flush=True)
    else:
        resume = ['--resume', 'auto'] if work.exists() else []
        options = [] if seed is None else ['--cfg-options', f'randomness.seed={seed}']
        run('train', part.config, '--work-dir', str(work), *resume, *options)
        shutil.copy(work / 'last_checkpoint', work / 'trained')
    checkpoint = str(work / Path((work / 'trained').read_text().strip()).name)
    for folder, config in part.tests.values():
        say(f'3/3 test ({folder})')
        run('test', config, checkpoint, '--work-dir', str(work / f'test_{folder}'),
            '--show-dir', str(work / 'pictures' / folder))


def run(*words: str) -> None:
    """Run a command in another process and wait for it; Ctrl-C reaches that process too, which then
    saves a checkpoint.

    Args:
        words: a command of mmposenc and its arguments.

    Raises:
        SystemExit: with the status of the process if it is not 0.
    """
    # Threads wait passively: spinning threads are much slower on a busy machine, and hardly faster
    # on an idle one. Freed memory is kept: glibc would return it to the system, which clears it
    # again in the next step: a sixth of the time of a step.
    process = subprocess.Popen(
        [sys.executable, '-m', 'mmposenc', *words],
        env={'OMP_WAIT_POLICY': 'PASSIVE', 'MALLOC_MMAP_MAX_': '0',
             'MALLOC_TRIM_THRESHOLD_': '4000000000', **os.environ})
    status = None
    while status is None:
        try:
            status = process.wait()
        except KeyboardInterrupt:
            continue
    if status:
        raise SystemExit(status if status > 0 else 128 - status)


def metrics_table(work_dirs: Mapping[str, str | Path]) -> str:
    """A table of the metrics of the newest test in each work directory, with a row for each.

    Args:
        work_dirs: name of each row and the work directory of its test.
    """
    # mmengine calls them <time>/<time>.json.
    newest = {name: max(Path(work_dir).glob('*/*.json')) for name, work_dir in work_dirs.items()}
    tests = {name: json.loads(path.read_text()) for name, path in newest.items()}
    columns = [(title, key, style) for title, key, style in COLUMNS
               if any(key in metrics for metrics in tests.values())]
    rows = [['', *(title for title, _, _ in columns)]]
    for name, metrics in tests.items():
        # A detector that finds nothing has no metrics.
        rows.append([name, *(format(metrics[key], style) if key in metrics else '-'
                             for _, key, style in columns)])
    width = max(len(row[0]) for row in rows)
    return '\n'.join('  '.join((row[0].ljust(width), *(cell.rjust(6) for cell in row[1:])))
                     for row in rows)
