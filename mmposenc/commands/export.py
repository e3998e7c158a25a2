"""Write a trained model as an ONNX file, up to its raw outputs.

    mmposenc export CONFIG work_dirs/NAME/epoch_12.pth retinanet.onnx
    mmposenc export CONFIG CHECKPOINT model.onnx --size 512 512 --fixed-size

The exported model takes any number of images of any size, with pixels from 0 to 255. Before the
file gets its name, its outputs are compared with the model at several sizes (docs/export.md).
"""
from __future__ import annotations

import argparse
import json
import os

from ..terminal.messages import reporting_errors
from ..terminal.options import SIDE, TOLERANCE, add_encoding, make_config_parser, sides_of_option


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = make_config_parser(__doc__, 'model.backbone.implementation=reference',
                                'mmposenc export')
    parser.add_argument('checkpoint', help="the weights; 'none': random weights")
    parser.add_argument('out', help='the file, which ends in .onnx')
    add_encoding(parser)
    parser.add_argument('--size', type=SIDE, nargs='+', default=(256, 320), metavar='N',
                        help='size of the example: height and width, or one number for both; '
                        'default 256 320')
    parser.add_argument('--fixed-size', action='store_true',
                        help='take images of only that size (default: of any size)')
    parser.add_argument('--decode', action='store_true', help='return boxes, scores and labels of '
                        'one image after NMS, as predict does; for one-stage detectors')
    parser.add_argument('--tolerance', type=float, default=TOLERANCE, help='largest allowed '
                        f'difference from the model, relative to the output; default {TOLERANCE:g}')
    parser.add_argument('--overwrite', action='store_true', help='replace an existing file')
    args = parser.parse_args(argv)
    args.size = sides_of_option(parser, args.size)
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    with reporting_errors(args):
        from ..engine.apps.export import export
        from ..engine.variants.applying import read_encoded_config
        cfg = read_encoded_config(args)
        checkpoint = None if args.checkpoint == 'none' else args.checkpoint
        notes, check = export(
            cfg, checkpoint, args.out, size=args.size, fixed_size=args.fixed_size,
            decode=args.decode, tolerance=args.tolerance, overwrite=args.overwrite)
    print(f'wrote {args.out}, {os.path.getsize(args.out) / 2 ** 20:.1f} MiB')
    for key, value in notes.items():
        print(f'{key}: {json.dumps(value, default=str)}')
    print(f'largest difference from the model: {check.difference:.1e}, relative to the output, in '
          f'{len(check.sizes)} batches: {", ".join("x".join(map(str, s)) for s in check.sizes)}')
    if check.boxes is not None:
        print(f'boxes compared: {check.boxes}' if check.boxes else
              'no box was compared: the model finds none in pictures of the test data, or in noise '
              'where there are none; train it, or lower model.test_cfg.score_thr')
