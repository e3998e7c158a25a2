"""Download a small data set, train a small model, test it, and draw its predictions.

    mmposenc quickstart [detection|segmentation|pretrained] [--seed N]
    mmposenc quickstart pretrained --weights FILE

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
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from ..terminal.messages import Parser, reporting_errors
from ..terminal.options import SEED

#: The configs for trees and for nuclei. The same folder has further configs: with -block for
#: another test of the trees, and with -quick for training from random weights.
RANDOM = ('mmposenc::detection/small/retinanet_pvt-micro-peg_fpn_1xb4-12e_trees.py',
          'mmposenc::segmentation/small/fpn_pvt-micro-peg_1xb4-10e_nuclei-128x128.py')
FROZEN = ('mmposenc::detection/small/retinanet_vit-s14_sfp_1xb4-10e_trees.py',
          'mmposenc::segmentation/small/linear_vit-s14_1xb4-10e_nuclei-448x448.py')


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(__doc__, prog='mmposenc quickstart')
    parser.add_argument('task', nargs='?', default='detection',
                        choices=['detection', 'segmentation', 'pretrained'])
    parser.add_argument('--seed', type=SEED, metavar='N', help='seed of the training')
    parser.add_argument('--weights', type=_existing_file, metavar='FILE',
                        help="for 'pretrained': weights of "
                        "DINOv2's ViT-S/14 (names of DINOv2, timm or Hugging Face) instead of "
                        'a download')
    parser.add_argument('--out', type=Path, metavar='FOLDER', help='folder of results (default: '
                        'work_dirs/quickstart, followed by the task and the seed)')
    args = parser.parse_args(argv)
    if args.weights and args.task != 'pretrained':
        parser.error("--weights is for 'pretrained'")
    return args


def _existing_file(text: str) -> Path:
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f'{text!r} must be an existing file')
    return Path(text).resolve()


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    with reporting_errors(args):
        from ..dependencies import require
        require('mmposenc quickstart', ('mmengine', 'mmcv', 'mmdet', 'mmseg'))
        task = '' if args.task == 'detection' else f'-{args.task}'
        seed = '' if args.seed is None else f'-seed{args.seed}'
        out = args.out or Path('work_dirs', f'quickstart{task}{seed}')
        start = time.monotonic()
        say('1/3 data')
        fetch(args)
        trees, nuclei = FROZEN if args.task == 'pretrained' else RANDOM
        both = args.task == 'pretrained'
        if args.task != 'segmentation':
            run_detection(args, trees, out / 'trees' if both else out, out / 'pictures', start)
        if args.task != 'detection':
            run_segmentation(args, nuclei, out / 'nuclei' if both else out,
                             out / 'pictures' / 'nuclei' if both else out / 'pictures', start)
        print(f'pictures: {out}/pictures (left: ground truth, right: predictions)')


def say(text: str) -> None:
    print(f'quickstart: {text}', flush=True)


def fetch(args: argparse.Namespace) -> None:
    """Download the data and weights that are missing."""
    from . import prepare
    names = {'detection': ['trees'], 'segmentation': ['nuclei'],
             'pretrained': ['trees', 'nuclei'] + ['pretrained'] * (not args.weights)}[args.task]
    for name in names:
        prepare.main([name])


def run_detection(args: argparse.Namespace, config: str, work: Path, pictures: Path,
                  start: float) -> None:
    quick = config.replace('.py', '-quick.py') if config in RANDOM else config
    trained = train(args, quick, work)
    tests = {'held-out block of the training plots': ('block', config.replace('.py', '-block.py')),
             'a different plot': ('other_plot', config)}
    for folder, tested in tests.values():
        test(tested, work, folder, '--show-dir', str(pictures / folder))
    print_scores('COCO AP of boxes', work, {name: folder for name, (folder, _) in tests.items()},
                 trained, start)


def run_segmentation(args: argparse.Namespace, config: str, work: Path, pictures: Path,
                     start: float) -> None:
    trained = train(args, config, work)
    tests = {'held-out strip': 'strip'}
    test(config, work, 'strip', '--show-dir', str(pictures))
    if args.task != 'pretrained':
        tests['the same, 3 sizes and flips'] = 'strip_tta'
        test(config, work, 'strip_tta', '--tta')
    print_scores('mIoU, mean accuracy and pixel accuracy, in percent', work, tests, trained, start)


def train(args: argparse.Namespace, config: str, work: Path) -> float:
    """Train unless the training is complete; returns the seconds that it took."""
    start = time.monotonic()
    say('2/3 training (stop it with Ctrl-C; the same command resumes)')
    if (work / 'trained').is_file():
        print(f'already trained; delete {work} to train again', flush=True)
        return 0.
    options = [] if args.seed is None else [f'randomness.seed={args.seed}']
    if args.weights:
        options.append(f'model.backbone.init_cfg.checkpoint={args.weights}')
    run('train', options, config, '--work-dir', str(work),
        *(['--resume', 'auto'] if work.exists() else []))
    shutil.copy(work / 'last_checkpoint', work / 'trained')
    return time.monotonic() - start


def test(config: str, work: Path, folder: str, *words: str) -> None:
    say(f'3/3 test ({folder})')
    checkpoint = work / Path((work / 'trained').read_text().strip()).name
    run('test', [], config, str(checkpoint), '--work-dir', str(work / f'test_{folder}'), *words)


def run(command: str, options: list[str], *words: str) -> None:
    """Run a command in another process and wait for it; Ctrl-C reaches that process too, which then
    saves a checkpoint.

    Args:
        command: 'train' or 'test'.
        options: KEY=VALUE changes of its config.
        words: its other arguments.

    Raises:
        SystemExit: with the status of the process if it is not 0.
    """
    # Threads wait passively: spinning threads are much slower on a busy machine, and hardly faster
    # on an idle one. Freed memory is kept: glibc would return it to the system, which clears it
    # again in the next step: a sixth of the time of a step.
    process = subprocess.Popen(
        [sys.executable, '-m', 'mmposenc', command, *words,
         *(['--cfg-options', *options] if options else [])],
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


def print_scores(what: str, work: Path, tests: dict[str, str], trained: float, start: float
                 ) -> None:
    from ..engine.apps.report import metrics_table
    say(f'{what} (training {trained:.0f} s, everything {time.monotonic() - start:.0f} s)')
    print(metrics_table({name: work / f'test_{folder}' for name, folder in tests.items()}),
          flush=True)
