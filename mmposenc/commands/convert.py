"""Convert an official checkpoint to that of an mmpretrain classifier on this project's backbone, or
to that of a detector; or weights of this project back to timm's names.

    mmposenc convert auto deit_small_patch16_224-cd65a155.pth deit-s.safetensors
    mmposenc convert deformable-detr r50_deformable_detr-checkpoint.pth out.pth
    mmposenc convert auto epoch_12.pth vit-s.safetensors --to timm

Backbones take official files directly too: init_cfg=dict(type='Pretrained', checkpoint=...).
"""
from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..command_line import Parser, reported

if TYPE_CHECKING:
    from torch import Tensor

    from ..checkpoint import Converted

#: Those of ``checkpoint/``.
SOURCES = ('pvt', 'twins', 'timm-pvt-v2', 'huggingface-segformer', 'mmdet-pvt', 'mm-twins', 'deit',
           'irpe-deit', 'mmpretrain-vit', 'eva', 'dinov2', 'huggingface-vit', 'huggingface-clip',
           'clip', 'irpe-detr', 'deformable-detr', 'beit', 'huggingface-beit', 'mmpretrain-beit',
           'relpos', 'swin', 'mmpretrain-swin', 'mmdet-swin', 'sam')


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(__doc__, prog='mmposenc convert')
    parser.add_argument('source', choices=['auto', *SOURCES],
                        help="whose checkpoint it is, or with --to whose names it gets; 'auto': "
                             'told by its names')
    parser.add_argument('input', help='.pth, .pt, .bin, .tar or .safetensors')
    parser.add_argument('output', help='.pth or .safetensors')
    parser.add_argument('--to', choices=['mmposenc', 'timm'], default='mmposenc',
                        help="whose names to write; 'timm': of weights of this project, those of "
                             "timm's model (default: mmposenc)")
    parser.add_argument('--overwrite', action='store_true', help='replace an existing output')
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    output = Path(args.output)
    with reported(args):
        from ..checkpoint import look_alikes, needed_options, read_checkpoint, write_checkpoint
        from ..checkpoint.eva import rounds_periods
        from ..checkpoint.needs import BACKBONE
        from ..checkpoint.rules import shown
        if output.suffix not in ('.pth', '.safetensors'):
            raise ValueError(f'{output} must end in .safetensors or .pth')
        if output.exists() and not args.overwrite:
            raise ValueError(f'{output} exists; give --overwrite to replace it')
        if not output.absolute().parent.is_dir():
            raise ValueError(f'{output.absolute().parent} is no folder')
        file = read_checkpoint(args.input)
        converted, metadata = convert_file(args, file.state_dict)
        write_checkpoint(output, converted.state_dict,
                         {**metadata, 'file': Path(args.input).name})
    reasons: dict[str, list[str]] = {}
    for name, reason in converted.dropped.items():
        reasons.setdefault(reason, []).append(name)
    print(f'{len(file.state_dict)} weights read, {len(converted.state_dict)} written to {output}, '
          f'{len(converted.dropped)} dropped')
    for reason, names in reasons.items():
        print(f'dropped, {reason}: {shown(names)}')
    if args.to == 'mmposenc' and (needs := needed_options(converted.state_dict)):
        if rounds_periods(file.state_dict):
            needs.append(f'{BACKBONE}rel_pos_encoding.round_periods=True')
        print(f'the model that takes them needs {" ".join(needs)}')
        for who, options in look_alikes(converted.state_dict).items():
            inferred = ' '.join(f'{BACKBONE}{option}' for option in options)
            print(f'if they are of {who}, which the file does not say: {inferred}')
    if file.ignored:
        print(f'not weights, left out: {", ".join(file.ignored)}')


def convert_file(args: argparse.Namespace, state: dict[str, Tensor]
                 ) -> tuple[Converted, dict[str, str]]:
    """The weights under other names, and what is noted in the file about them.

    Raises:
        ValueError: for weights that are of no known source, or of another one.
    """
    from ..checkpoint import convert_back, convert_with_report, recognise
    from ..checkpoint.recognition import looks_like
    from ..checkpoint.rules import shown

    source = None if args.source == 'auto' else args.source
    if args.to == 'timm':
        if known := recognise(state):
            raise ValueError(f'{args.input} has names of source {known!r}; --to timm takes weights '
                             f'in the names of this project')
        return convert_back(state, source), {'names': 'timm'}
    source = source or recognise(state)
    if source is None:
        raise ValueError(f'{args.input} is of no source known here: it has '
                         f'{shown(sorted(state))}; {looks_like(state)}')
    return convert_with_report(state, source), {'source': source}
