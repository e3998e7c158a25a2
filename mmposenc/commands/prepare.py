"""Download small data sets and weights, check a local data set, or convert your own labels.

    mmposenc prepare trees [--out data/trees]
    mmposenc prepare mnist5k [--out data/mnist5k]
    mmposenc prepare nuclei [--out data/nuclei]
    mmposenc prepare pretrained [--out data/pretrained]
    mmposenc prepare fashion DOWNLOADS/fashion [--out data/fashion]
    mmposenc prepare mnist DOWNLOADS/mnist [--out data/mnist]
    mmposenc prepare coco data/coco
    mmposenc prepare ade20k data/ade/ADEChallengeData2016
    mmposenc prepare --from yolo|voc|labelme|masks YOUR_FOLDER --out data/mine
"""
from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from ..command_line import Parser, reported
from ..command_options import SEED, number_between
from ..engine.prepare.copies import check_ade20k, check_coco
from ..engine.prepare.labels import KINDS
from ..engine.prepare.mnist import IDX_SOURCES, prepare_idx, prepare_mnist5k
from ..engine.prepare.nuclei import prepare_nuclei
from ..engine.prepare.own import GROUPS, prepare_own
from ..engine.prepare.pretrained import prepare_pretrained
from ..engine.prepare.trees import prepare_trees

CHECKS: dict[str, tuple[Callable[[Path], list[str]], str]] = {
    'coco': (check_coco, 'the folder with train2017, val2017 and annotations'),
    'ade20k': (check_ade20k, 'the folder with images and annotations')}
FETCHES: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    'trees': (prepare_trees, 'download and cut the tree crowns (20.6 MB, MIT)'),
    'mnist5k': (prepare_mnist5k, 'download 5,000 digits of MNIST (1.4 MB)'),
    'nuclei': (prepare_nuclei, 'download and cut an image of nuclei (3.1 MB, BSD-3-Clause)'),
    'pretrained': (prepare_pretrained, 'download the weights of a ViT-S/14 (90 MB, MIT)')}


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(__doc__, prog='mmposenc prepare')
    if any(word.partition('=')[0] == '--from' for word in (sys.argv[1:] if argv is None else argv)):
        return _parse_own(parser, argv)
    commands = parser.add_subparsers(dest='command', required=True)
    for name, (_, what) in FETCHES.items():
        command = commands.add_parser(name, help=what)
        command.add_argument('--out', type=Path, default=Path('data', name))
        command.add_argument('--cache', type=Path, default=Path('.cache', 'downloads'),
                             help='folder of the downloaded package')
    for name, source in IDX_SOURCES.items():
        command = commands.add_parser(name, help=f'check and convert a local {source.name}')
        command.add_argument('path', type=Path, help='the folder with its four IDX files')
        command.add_argument('--out', type=Path, default=Path('data', name))
    for name, (_, what) in CHECKS.items():
        command = commands.add_parser(name, help=f'check a local copy of {name}')
        command.add_argument('path', type=Path, help=what)
    return parser.parse_args(argv)


def _parse_own(parser: argparse.ArgumentParser, argv: list[str] | None) -> argparse.Namespace:
    parser.add_argument('--from', choices=KINDS, dest='command', help='format of the labels')
    parser.add_argument('path', type=Path, help='folder of pictures and labels; it is not changed')
    parser.add_argument('--out', type=Path, required=True, help='a new folder')
    parser.add_argument('--classes', type=lambda text: text.split(','), metavar='A,B',
                        help='class names in the order of the labels (default: as in the folder)')
    parser.add_argument('--val', type=number_between(0, 1, 'between 0 and 1'), default=0.2,
                        help='share for validation if there are no folders train and val '
                        '(%(default)s)')
    parser.add_argument('--group-by', choices=GROUPS, help='do not split images of one folder, or '
                        "with one name before their last '_' or '-', between train and val")
    parser.add_argument('--seed', type=SEED, default=0, help='of the split')
    parser.add_argument('--skip-bad', action='store_true', help='leave out files with errors')
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    with reported(args):
        if args.command in FETCHES:
            FETCHES[args.command][0](args.out, args.cache)
        elif args.command in KINDS:
            prepare_own(args.command, args.path, args.out, args.classes, args.val, args.group_by,
                        args.seed, args.skip_bad)
        elif args.command in IDX_SOURCES:
            prepare_idx(args.path, args.out, IDX_SOURCES[args.command])
        else:
            say_problems(args.path, CHECKS[args.command][0](args.path))


def say_problems(path: Path, problems: list[str]) -> None:
    """Print what is wrong with a data set and end with status 1, or print that nothing is."""
    for problem in problems:
        print(problem)
    print(f'{path}: ' + (f'{len(problems)} problems' if problems else 'complete'))
    if problems:
        raise SystemExit(1)
