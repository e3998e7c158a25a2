"""Convert an official checkpoint to that of an mmpretrain classifier on this project's backbone.

    python tools/convert_checkpoint.py deit deit_small_patch16_224-cd65a155.pth deit-s.safetensors
    python tools/convert_checkpoint.py swin swin_tiny_patch4_window7_224.pth swin-t.pth

Backbones take official files directly too: init_cfg=dict(type='Pretrained', checkpoint=...).
"""
import argparse
from pathlib import Path

from mmposenc.checkpoint import SOURCES, convert_with_report, read_checkpoint, write_checkpoint
from mmposenc.command_line import Parser, reported


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(__doc__)
    parser.add_argument('source', choices=list(SOURCES), help='whose checkpoint it is')
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
        converted = convert_with_report(file.state_dict, args.source)
        write_checkpoint(output, converted.state_dict,
                         dict(source=args.source, file=Path(args.input).name))
    reasons: dict[str, list[str]] = {}
    for name, reason in converted.dropped.items():
        reasons.setdefault(reason, []).append(name)
    print(f'{len(file.state_dict)} weights read, {len(converted.state_dict)} written to {output}, '
          f'{len(converted.dropped)} dropped')
    for reason, names in reasons.items():
        print(f'dropped, {reason}: {", ".join(names)}')
    if file.ignored:
        print(f'not weights, left out: {", ".join(file.ignored)}')


if __name__ == '__main__':
    main()
