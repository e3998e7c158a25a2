"""Show where the position encodings of a model sit, what they cost and what they do.

    mmposenc inspect CONFIG                               # where they sit; counts
    mmposenc inspect CONFIG --out inspected               # and pictures of them
    mmposenc inspect CONFIG CHECKPOINT --out inspected --image photo.jpg    # of the trained model

CONFIG may be one of mmdet, mmseg or mmpretrain. Without a checkpoint the weights are random.
docs/inspect.md says what each picture shows.
"""
import argparse
import contextlib
import sys

from ..terminal.messages import reporting_errors
from ..terminal.options import (
    SIDE,
    USUAL,
    add_encoding,
    make_config_parser,
    refuse_given,
    sides_of_option,
)


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = make_config_parser(__doc__, 'model.backbone.arch=small', prog='mmposenc inspect')
    add_encoding(parser)
    parser.add_argument('checkpoint', nargs='?', help='weights of the model')
    parser.add_argument('--size', type=SIDE, nargs='+', metavar='N', help="size of the model's "
                        f'input: H W, or one number for a square; default {USUAL}')
    parser.add_argument('--out', metavar='DIR', help='write pictures and numbers.json into this '
                        'folder')
    parser.add_argument('--image', metavar='FILE', help='a picture; default: the first of the '
                        "config's test data, else noise")
    parser.add_argument('--at', type=float, nargs=2, default=(0.5, 0.5), metavar=('Y', 'X'),
                        help='place of the token whose attention is drawn, as fractions of height '
                        'and width; default the middle')
    args = parser.parse_args(argv)
    args.size = None if args.size is None else sides_of_option(parser, args.size)
    if args.out is None:
        refuse_given(parser, args, '--out', 'image', 'at')
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    with reporting_errors(args, only_prints=args.out is None):
        # The output of libraries must not mix with the lines on standard output.
        with contextlib.redirect_stdout(sys.stderr):
            from ..engine.variants.applying import read_encoded_config
            from ..lab.inspect.report import inspect_config
            cfg = read_encoded_config(args)
            lines = inspect_config(cfg, args.checkpoint, size=args.size, image=args.image,
                                   at=tuple(args.at), out=args.out)
        print('\n'.join(lines))
