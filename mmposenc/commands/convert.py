"""Convert an official checkpoint to a classifier or detector of this project, or weights of this
project to timm's names.

    mmposenc convert auto deit_small_patch16_224-cd65a155.pth deit-s.safetensors
    mmposenc convert deformable-detr r50_deformable_detr-checkpoint.pth out.pth
    mmposenc convert auto epoch_12.pth vit-s.safetensors --to timm

Backbones also load official files directly: init_cfg=dict(type='Pretrained', checkpoint=...).
"""
from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..terminal.messages import Parser, reporting_errors

if TYPE_CHECKING:
    from torch import Tensor

    from ..checkpoint import Converted


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(__doc__, prog='mmposenc convert')
    parser.add_argument('source', help="origin of the checkpoint, such as 'deit' (docs/weights.md "
                                       "has all), or with --to the names to write; 'auto': "
                                       'recognised by the names of the weights')
    parser.add_argument('input', help='.pth, .pt, .bin, .tar or .safetensors')
    parser.add_argument('output', help='.pth or .safetensors')
    parser.add_argument('--to', choices=['mmposenc', 'timm'], default='mmposenc',
                        help="which names to write; 'timm': names of timm's model, for weights of "
                             'this project (default: mmposenc)')
    parser.add_argument('--overwrite', action='store_true', help='replace an existing output')
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    output = Path(args.output)
    with reporting_errors(args):
        from ..backbones.arch_of_weights import BACKBONE, look_alikes, needed_options
        from ..backbones.base import Backbone
        from ..checkpoint import check_source, read_checkpoint, write_checkpoint
        from ..checkpoint.eva import rotary_options
        from ..checkpoint.hub import pieces_of
        from ..checkpoint.numbers import check_numbers
        from ..checkpoint.rules import names_text
        from ..writing import check_new_files
        source = None if args.source == 'auto' else args.source
        check_source(source, back=args.to == 'timm')  # Checked before a file is read or downloaded.
        if output.suffix not in ('.pth', '.safetensors'):
            raise ValueError(f'{output} must end in .safetensors or .pth')
        if not output.absolute().parent.is_dir():
            raise ValueError(f'{output.absolute().parent} is not a folder')
        check_new_files(output.parent, [output.name], 'OUTPUT', ours=lambda _: args.overwrite,
                        inputs=[args.input, *Path(args.input).glob('*'),
                                *map(Path(args.input).with_name,
                                     pieces_of(Path(args.input), args.input))],
                        remedy='give --overwrite to replace it')
        file = read_checkpoint(args.input)
        converted = convert_file(args, source, file.state_dict)
        periods = converted.computed.get('periods')
        rotary = {} if periods is None else rotary_options(periods)
        check_numbers({name: value for name, value in converted.state_dict.items()
                       if not name.endswith('num_batches_tracked')}, args.input)
        notes = {'names': 'timm'} if args.to == 'timm' else {'source': str(converted.source)}
        write_checkpoint(output, converted.state_dict, {**notes, 'file': Path(args.input).name})
    reasons: dict[str, list[str]] = {}
    for name, reason in converted.dropped.items():
        reasons.setdefault(reason, []).append(name)
    print(f'{len(file.state_dict)} weights read, {len(converted.state_dict)} written to {output}, '
          f'{len(converted.dropped)} dropped')
    for reason, names in reasons.items():
        print(f'dropped, {reason}: {names_text(names)}')
    kinds = Backbone.__subclasses__()
    if args.to == 'mmposenc' and (needs := needed_options(converted.state_dict, kinds)):
        # What the output does not show, where no warning names it when the output is loaded.
        needs += [f'{BACKBONE}rel_pos_encoding.{name}={value}'.replace(' ', '')
                  for name, value in rotary.items() if value not in (100.0, False)]
        print(f'the model for these weights needs {" ".join(needs)}')
        for who, options in look_alikes(converted.state_dict, kinds,
                                        file.state_dict).items():
            print(f'the file does not name the model; if it is {who}: '
                  f'{" ".join(BACKBONE + option for option in options)}')
    if file.ignored:
        print(f'not weights, left out: {", ".join(file.ignored)}')


def convert_file(args: argparse.Namespace, source: str | None, state: dict[str, Tensor]
                 ) -> Converted:
    """Rename the weights of a file: from those of a release to this project's, or back.

    Raises:
        ValueError: the weights are of an unknown source, or of another one than given.
    """
    from ..checkpoint import convert_back, convert_with_report, recognise
    from ..checkpoint.rules import SUPPORTED, names_text

    if args.to == 'timm':
        if known := recognise(state):
            raise ValueError(f'{args.input} has names of source {known!r}; --to timm needs weights '
                             f'with the names of this project')
        return convert_back(state, source)
    converted = convert_with_report(state, source)
    if converted.source is None:
        raise ValueError(f'{args.input} is of an unknown source: it has '
                         f'{names_text(sorted(state))}; {SUPPORTED}')
    return converted
