"""Write a trained model as an ONNX file, or as an exported program, up to its raw outputs.

    mmposenc export CONFIG work_dirs/NAME/epoch_12.pth retinanet.onnx
    mmposenc export CONFIG CHECKPOINT model.pt2 --size 512 512 --fixed-size

The exported model takes any number of images of any size. Before the file gets its name, its
outputs are compared with the model at several sizes (docs/export.md).
"""
from __future__ import annotations

import argparse
from typing import Any

from ..terminal.messages import reporting_errors
from ..terminal.options import (
    OPSET,
    SIDE,
    TOLERANCE,
    add_data,
    add_encoding,
    make_config_parser,
    refuse_given,
    sides_of_option,
    whole_number,
)

#: First and last opset that torch's exporter writes and ONNX Runtime reads.
OPSETS = 18, 22


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = make_config_parser(__doc__, 'model.backbone.implementation=reference',
                                'mmposenc export')
    parser.add_argument('checkpoint', help="the weights; 'none': random weights")
    parser.add_argument('out', help='the file: .onnx, or .pt2 for torch.export.load')
    add_data(parser)
    add_encoding(parser)
    parser.add_argument('--size', type=SIDE, nargs='+', default=(256, 320), metavar='N',
                        help='size of the example: height and width, or one number for both; '
                        'default 256 320')
    parser.add_argument('--fixed-size', action='store_true',
                        help='take images of only that size (default: of any size)')
    parser.add_argument('--normalise', action='store_true', help='take pixels from 0 to 255 and '
                        'normalise them (default: the caller normalises)')
    parser.add_argument('--decode', action='store_true', help='return boxes, scores and labels of '
                        'one image after NMS, as predict does; for ONNX files of one-stage '
                        'detectors')
    parser.add_argument('--tolerance', type=float, default=TOLERANCE, help='largest allowed '
                        f'difference from the model, relative to the output; default {TOLERANCE:g}')
    parser.add_argument('--opset', type=whole_number(*OPSETS), default=OPSET,
                        help=f'opset of ONNX; default {OPSET}')
    parser.add_argument('--overwrite', action='store_true', help='replace an existing file')
    args = parser.parse_args(argv)
    args.size = sides_of_option(parser, args.size)
    if not args.out.endswith('.onnx'):
        refuse_given(parser, args, 'a file that ends in .onnx', 'opset', 'decode')
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    with reporting_errors(args):
        from ..engine.apps.export import export
        from ..engine.variants.applying import read_encoded_config
        cfg = read_encoded_config(args)
        checkpoint = None if args.checkpoint == 'none' else args.checkpoint
        exported = export(cfg, checkpoint, args.out, size=args.size, fixed_size=args.fixed_size,
                          normalise=args.normalise, decode=args.decode, tolerance=args.tolerance,
                          opset=args.opset, overwrite=args.overwrite)
    notes = exported.notes
    print(f'wrote {exported.path}, {exported.path.stat().st_size / 2 ** 20:.1f} MiB')
    number = 'one' if args.decode else 'any number'
    print(f"takes images ({number}, channels {notes['channels']}, height, width), float32, "
          f"{notes['input']}; mean={notes['mean']}, std={notes['std']}")
    if notes['resize'] or notes['other_steps']:
        print(f'before, resize pictures as predict does: {_resizing_text(notes)}')
    for name in ('height', 'width'):
        least, most = notes[name]
        print(f'{name}: {least} to {"any" if most is None else most}')
    print(f"gives {', '.join(notes['outputs'])}")
    if 'threshold' in notes:
        print(f'a pixel is {_name_of_second_class(notes)} where sigmoid(logits) > '
              f"{notes['threshold']:g}")
    check = exported.check
    print(f'largest difference from the model: {check.difference:.1e}, relative to the output, in '
          f'{len(check.sizes)} batches: {", ".join("x".join(map(str, s)) for s in check.sizes)}')
    if check.boxes is not None:
        print(f'boxes compared: {check.boxes}' if check.boxes else
              'no box was compared: the model finds none in pictures of the test data, where there '
              'are any, and in noise; train it, or lower model.test_cfg.score_thr')


def _resizing_text(notes: dict[str, Any]) -> str:
    words = []
    if resize := notes['resize']:
        ratio = 'within it, keeping the ratio of the sides' if resize['keep_ratio'] else 'exactly'
        width, height = resize['scale']
        words.append(f"to width {width}, height {height} {ratio} ({resize['interpolation']})")
    return ', then '.join([*words, *notes['other_steps']])


def _name_of_second_class(notes: dict[str, Any]) -> str:
    return str(notes['classes'][1]) if len(notes.get('classes', ())) > 1 else 'foreground'
