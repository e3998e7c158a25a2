"""Convert an official checkpoint to that of an mmpretrain classifier on this project's backbone, or
to that of a detector.

    python tools/convert_checkpoint.py auto deit_small_patch16_224-cd65a155.pth deit-s.safetensors
    python tools/convert_checkpoint.py deformable-detr r50_deformable_detr-checkpoint.pth out.pth

Backbones take official files directly too: init_cfg=dict(type='Pretrained', checkpoint=...).
"""
import argparse
from pathlib import Path

from mmposenc.checkpoint import (
    SOURCES,
    convert_with_report,
    needed_options,
    read_checkpoint,
    recognise,
    write_checkpoint,
)
from mmposenc.checkpoint.recognition import SUPPORTED
from mmposenc.checkpoint.rules import shown
from mmposenc.command_line import Parser, reported


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument('source', choices=['auto', *SOURCES],
                        help="whose checkpoint it is; 'auto': told by its names")
    parser.add_argument('input', help='.pth, .pt, .bin, .tar or .safetensors')
    parser.add_argument('output', help='.pth or .safetensors')
    parser.add_argument('--overwrite', action='store_true', help='replace an existing output')
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    output = Path(args.output)
    with reported(args):
        if output.suffix not in ('.pth', '.safetensors'):
            raise ValueError(f'{output} must end in .safetensors or .pth')
        if output.exists() and not args.overwrite:
            raise ValueError(f'{output} exists; give --overwrite to replace it')
        if not output.absolute().parent.is_dir():
            raise ValueError(f'{output.absolute().parent} is no folder')
        file = read_checkpoint(args.input)
        source = recognise(file.state_dict) if args.source == 'auto' else args.source
        if source is None:
            raise ValueError(f'{args.input} is of no source known here: it has '
                             f'{shown(sorted(file.state_dict))}; {SUPPORTED}')
        converted = convert_with_report(file.state_dict, source)
        write_checkpoint(output, converted.state_dict,
                         dict(source=source, file=Path(args.input).name))
    reasons: dict[str, list[str]] = {}
    for name, reason in converted.dropped.items():
        reasons.setdefault(reason, []).append(name)
    print(f'{len(file.state_dict)} weights read, {len(converted.state_dict)} written to {output}, '
          f'{len(converted.dropped)} dropped')
    for reason, names in reasons.items():
        print(f'dropped, {reason}: {", ".join(names)}')
    if needs := needed_options(converted.state_dict):
        print(f'the model that takes them needs {" ".join(needs)}')
    if file.ignored:
        print(f'not weights, left out: {", ".join(file.ignored)}')


if __name__ == '__main__':
    main()
