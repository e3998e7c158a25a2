"""Measure how a model depends on position, without training it.

    mmposenc diagnose CONFIG [CHECKPOINT]
    mmposenc diagnose CONFIG [CHECKPOINT] --image a.jpg b.jpg --output-dir diagnosis --json

The measures: error under shifts, accuracy of a linear probe for position in each block, distance
and entropy of attention, change of outputs with image size and with padding, and similarity of
positions. docs/diagnose.md defines them. Without a checkpoint the weights are random. The images
are those of --image, by default some of the config's test data, and also noise.
"""
from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..command_line import reported
from ..command_options import SEED, SIDE, USUAL, config_parser, refuse_without, sides

if TYPE_CHECKING:
    from ..lab.diagnose import Measure

#: How many lines of a measure the terminal shows.
_SHOWN = 8


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = config_parser(__doc__, 'model.backbone.mask_padding=True', prog='mmposenc diagnose')
    parser.add_argument('checkpoint', nargs='?', help='weights of the model')
    parser.add_argument('--image', nargs='+', default=[], metavar='FILE', help='pictures')
    parser.add_argument('--size', type=SIDE, nargs='+', metavar='N',
                        help='size that images are resized to: H W, or one number for a square; '
                        f'default {USUAL}')
    parser.add_argument('--seed', type=SEED, default=0, help='seed of noise, crops and random '
                        'weights')
    parser.add_argument('--output-dir', metavar='DIR',
                        help='write a figure of each measure, and diagnosis.json')
    parser.add_argument('--format', choices=('png', 'svg', 'pdf'), default='png',
                        help='format of the figures; default png')
    parser.add_argument('--json', action='store_true', help='print all measures as json')
    args = parser.parse_args(argv)
    args.size = None if args.size is None else sides(parser, args.size)
    if args.output_dir is None:
        refuse_without(parser, args, '--output-dir', 'format')
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    # The output of libraries must not mix with the json on standard output.
    with reported(args), contextlib.redirect_stdout(sys.stderr):
        from ..engine.config.checks import check_folder
        from ..engine.config.options import read_config
        from ..lab.diagnose import write_figures
        from ..lab.diagnose.config_models import measure_config
        from ..lab.figures.encoding_figures import source_of
        cfg = read_config(args)
        if args.output_dir is not None:
            check_folder(args.output_dir, '--output-dir')
        result, measures = measure_config(cfg, args.checkpoint, images=args.image, size=args.size,
                                          seed=args.seed)
        source = source_of(cfg, args.checkpoint)
        about = dict(config=args.config, checkpoint=args.checkpoint, **result)
        text = json.dumps({**about, 'measures': [each.json() for each in measures]}, indent=1,
                          allow_nan=False)
        if args.output_dir is not None:
            written = write_figures(measures, args.output_dir, source,
                                    suffix=f'.{args.format}')
            (Path(args.output_dir) / 'diagnosis.json').write_text(f'{text}\n')
    print(text if args.json else as_text(about, measures, source))
    if args.output_dir is not None and not args.json:
        print(f'\nwrote {len(written)} figures and diagnosis.json to {args.output_dir}')


def as_text(about: dict[str, Any], measures: list[Measure], source: str) -> str:
    """The text for the terminal: the value of each measure, and its lines."""
    height, width = about['size']
    lines = [f'{source}; {height} x {width} pixels; {", ".join(about["images"])}'
             + (f'; {about["note"]}' if about['note'] else '')]
    for each in measures:
        value = '' if each.value is None else f': {each.value:.4g} {each.unit}'
        lines += ['', f'{each.title}{value}', f'  {each.text}']
        for row in (each.series or [])[:_SHOWN]:
            points = [f'{x:g}: {"-" if y is None else f"{y:.3g}"}'
                      for x, y in list(zip(row['x'], row['y'], strict=True))[:_SHOWN]]
            more = ' ...' * (len(row['x']) > _SHOWN)
            lines.append(f'  {row["label"]:<28} {"  ".join(points)}{more}')
        if len(each.series or []) > _SHOWN:
            lines.append(f'  ... {len(each.series or []) - _SHOWN} more lines: --json has all')
    return '\n'.join(lines)
