"""Download tree crowns, train a small detector on them, test it, and draw its predictions.

    mmposenc quickstart [--seed N]

A RetinaNet on PVT + PEG is trained from random weights, and tested in the same area of a forest and
in another area; the scores are COCO's AP. A CPU with instructions for bfloat16 trains in bfloat16.
Data go to data/, results to work_dirs/, both in the current folder. Pictures show ground truth on
the left and predictions on the right. Stop it with Ctrl-C; the same command resumes.
"""
from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from ..terminal.messages import Ended, Parser, reporting_errors
from ..terminal.options import SEED
from ..terminal.processes import python_command
from ..writing import writing_whole_file

_TREES = 'mmposenc::detection/small/retinanet_pvt-micro-peg_fpn_1xb4-12e_trees'
#: For each row of the table of scores, the folder of the test and its config.
TESTS = {'same area': ('same_area', f'{_TREES}-block.py'),
         'another area': ('another_area', f'{_TREES}.py')}
#: For each column of that table, the name of the metric.
SCORES = {'AP': 'coco/bbox_mAP', 'AP50': 'coco/bbox_mAP_50', 'AP75': 'coco/bbox_mAP_75'}


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(__doc__, prog='mmposenc quickstart')
    parser.add_argument('--seed', type=SEED, metavar='N', help='seed of the training')
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    with reporting_errors(args):
        from ..dependencies import require
        from . import prepare
        require('mmposenc quickstart', ('mmengine', 'mmcv', 'mmdet'))
        seed = '' if args.seed is None else f'-seed{args.seed}'
        work = Path('work_dirs', f'quickstart{seed}')
        say('1/3 data')
        prepare.main(['trees'])
        train_and_test(work, args.seed)
        print(table_of_scores(work))
        print(f'pictures: {work}/pictures (left: ground truth, right: predictions)')


def say(text: str) -> None:
    print(f'quickstart: {text}', flush=True)


def train_and_test(work: Path, seed: int | None) -> None:
    """Train unless the training is complete, and run the tests."""
    say('2/3 training (stop it with Ctrl-C; the same command resumes)')
    if (work / 'trained').is_file():
        print(f'already trained; delete {work} to train again', flush=True)
    else:
        resume = ['--resume', 'auto'] if work.exists() else []
        amp = ['--amp'] if bfloat16_saves_time() else []
        options = [] if seed is None else ['--cfg-options', f'randomness.seed={seed}']
        run('train', f'{_TREES}-quick.py', '--work-dir', str(work), *resume, *amp, *options)
        with writing_whole_file(work / 'trained') as partial:
            shutil.copy(work / 'last_checkpoint', partial)
    checkpoint = str(work / Path((work / 'trained').read_text().strip()).name)
    for title, (folder, config) in TESTS.items():
        say(f'3/3 test: {title}')
        run('test', config, checkpoint, '--work-dir', str(work / f'test_{folder}'),
            '--show-dir', str(work / 'pictures' / folder))


def bfloat16_saves_time() -> bool:
    """Whether the training will run on a CPU with instructions for bfloat16."""
    from mmengine.device import get_device

    from ..functional.linear import has_bfloat16_units
    return has_bfloat16_units() and get_device() == 'cpu'


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
        python_command('from mmposenc.commands import main; main()', *words),
        env={'OMP_WAIT_POLICY': 'PASSIVE', 'MALLOC_MMAP_MAX_': '0',
             'MALLOC_TRIM_THRESHOLD_': '4000000000', **os.environ})
    while process.poll() is None:
        with suppress(KeyboardInterrupt):
            process.wait()
    if status := process.returncode:
        raise Ended(status if status > 0 else 128 - status)


def table_of_scores(work: Path) -> str:
    """A table of the scores of the newest tests in a work directory, with a row for each."""
    width = max(map(len, TESTS))
    lines = [' ' * width + ''.join(name.rjust(8) for name in SCORES)]
    for title, (folder, _) in TESTS.items():
        # mmengine calls them <time>/<time>.json.
        metrics = json.loads(max((work / f'test_{folder}').glob('*/*.json')).read_text())
        # A detector that finds nothing has no metrics.
        cells = [f'{metrics[key]:.3f}' if key in metrics else '-' for key in SCORES.values()]
        lines.append(title.ljust(width) + ''.join(cell.rjust(8) for cell in cells))
    return '\n'.join(lines)
