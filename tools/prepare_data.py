"""Fetches and cuts the tree crowns of the quickstart, or checks a local copy of COCO or ADE20K.

    python tools/prepare_data.py trees [--out data/trees]
    python tools/prepare_data.py coco data/coco
    python tools/prepare_data.py ade20k data/ade/ADEChallengeData2016
"""
from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from mmposenc.datasets.prepare_ade20k import check_ade20k  # noqa: E402
from mmposenc.datasets.prepare_coco import check_coco  # noqa: E402
from mmposenc.datasets.prepare_common import PrepareError  # noqa: E402
from mmposenc.datasets.prepare_trees import prepare_trees  # noqa: E402

CHECKS = {'coco': (check_coco, 'the folder with train2017, val2017 and annotations'),
          'ade20k': (check_ade20k, 'the folder with images and annotations')}


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest='command', required=True)
    trees = commands.add_parser('trees', help='fetch and cut the tree crowns (20.6 MB, MIT)')
    trees.add_argument('--out', type=Path, default=ROOT / 'data' / 'trees')
    trees.add_argument('--cache', type=Path, default=ROOT / '.cache' / 'downloads',
                       help='where the downloaded package is kept')
    for name, (_, what) in CHECKS.items():
        command = commands.add_parser(name, help=f'check a local copy of {name}')
        command.add_argument('path', type=Path, help=what)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    args = parse_args(argv)
    if args.command == 'trees':
        try:
            prepare_trees(args.out, args.cache)
        except PrepareError as error:
            print(f'prepare_data.py: {error}', file=sys.stderr)
            return 1
        return 0
    check, _ = CHECKS[args.command]
    problems = check(args.path)
    for problem in problems:
        print(problem)
    print(f'{args.path}: ' + (f'{len(problems)} problems' if problems else 'complete'))
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
