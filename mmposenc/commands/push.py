"""Write a model as a repository folder, or upload it to the Hugging Face hub.

    mmposenc push work_dirs/trees trees-peg                        # a folder
    mmposenc push work_dirs/trees hf://OWNER/trees-peg --private   # needs a token: HF_TOKEN
    mmposenc push CONFIG hf://OWNER/NAME --checkpoint epoch_12.pth --metrics test.json

mmposenc.load('hf://OWNER/NAME'), or load of the folder, loads the model again.
"""
from __future__ import annotations

import argparse
import tempfile

from ..command_line import Parser, reported
from ..command_options import refuse_without


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(__doc__, prog='mmposenc push')
    parser.add_argument('model', metavar='MODEL',
                        help='work directory of a training, or a config with --checkpoint')
    parser.add_argument('target', metavar='TARGET', help='a folder, or hf://OWNER/NAME')
    parser.add_argument('--checkpoint', metavar='FILE',
                        help='the weights (default: the newest in the folder)')
    parser.add_argument('--metrics', metavar='FILE',
                        help='json of mmposenc test; its numbers go into the model card')
    parser.add_argument('--private', action='store_true', help='make a new repository private')
    parser.add_argument('--overwrite', action='store_true', help='replace files in the folder')
    args = parser.parse_args(argv)
    if args.target.startswith('hf://'):
        refuse_without(parser, args, 'a folder', 'overwrite')
    else:
        refuse_without(parser, args, 'hf://OWNER/NAME', 'private')
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    with reported(args):
        from pathlib import Path

        from ..checkpoint import hub
        from ..engine.apps import repository
        from ..engine.apps.report import read_metrics
        from ..engine.apps.results import load
        from ..engine.config.checks import check_folder
        named = hub.is_name(args.target)
        if named:
            hub.check_upload(args.target)
        else:
            check_folder(args.target, 'TARGET')
        if args.checkpoint is None and not Path(args.model).is_dir():
            raise ValueError(f'MODEL={args.model!r} is not the folder of a training: give the '
                             f'weights by --checkpoint')
        metrics = read_metrics(args.metrics) if args.metrics else None
        if metrics == {}:
            raise ValueError(f'--metrics {args.metrics} holds no numbers')
        model = load(args.model, args.checkpoint)
        if not named:
            repository.write(model, args.target, args.target, metrics, overwrite=args.overwrite)
            print(f'written: {args.target}')
            return
        with tempfile.TemporaryDirectory() as folder:
            repository.write(model, folder, hub.read_name(args.target).repo, metrics)
            print(f'uploaded: {hub.upload(args.target, folder, private=args.private)}')
