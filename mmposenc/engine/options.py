"""Command-line options that several commands share, and the config that they describe."""
from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any

from mmengine.config import Config, DictAction

from mmposenc.command_line import Parser

from .config import load_config, set_work_dir
from .overrides import override


class _Options(DictAction):
    """mmengine's KEY=VALUE, saying which word is none."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        for word in values:
            if '=' not in word:
                raise argparse.ArgumentError(self, f'{word!r} is not KEY=VALUE')
        super().__call__(parser, namespace, values, option_string)


def config_parser(description: str | None, example: str, prog: str | None = None) -> Parser:
    """A parser with ``config`` and ``--cfg-options``.

    Args:
        description: of the command: its docstring.
        example: a KEY=VALUE that makes sense for it.
        prog: how the command is typed, 'mmposenc train'; None: the script's name.
    """
    parser = Parser(description, prog=prog)
    add_config(parser, example)
    return parser


def add_config(parser: argparse.ArgumentParser, example: str, *, optional: bool = False) -> None:
    """``config`` and ``--cfg-options``, behind what a parser has already."""
    parser.add_argument('config', nargs='?' if optional else None,
                        help='a file, or mmposenc::<name>, or mmdet::<name>')
    parser.add_argument('--cfg-options', nargs='+', action=_Options, metavar='KEY=VALUE',
                        help=f'override the config: {example}, key="[a,b]" or key=a,b for lists')


def read_config(args: argparse.Namespace) -> Config:
    """The config that the arguments of :func:`add_config` name, with what they override."""
    cfg = load_config(args.config)
    override(cfg, args.cfg_options)
    return cfg


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """What training and testing have in common."""
    parser.add_argument('--work-dir', help='for logs and results; else the config\'s own, else '
                        'work_dirs/<name of the config>')
    parser.add_argument('--allow-mismatch', action='store_true', help='load what fits of a '
                        'checkpoint that does not fit the model, instead of stopping')
    parser.add_argument('--compile', action='store_true', help='torch.compile for the blocks of '
                        'the model, or for whole networks with KeepPaddingOut '
                        '(mmposenc.CompileHook); the first steps take longer')
    parser.add_argument('--launcher', choices=['none', 'pytorch', 'slurm', 'mpi'], default='none')
    parser.add_argument('--local_rank', '--local-rank', type=int, default=0,
                        help=argparse.SUPPRESS)


def parse_run(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse, and tell mmengine the local rank where it looks for it."""
    args = parser.parse_args(argv)
    os.environ.setdefault('LOCAL_RANK', str(args.local_rank))
    return args


def read_run_config(args: argparse.Namespace) -> Config:
    """As :func:`read_config`, with the work directory and launcher of :func:`add_run_options`."""
    cfg = read_config(args)
    set_work_dir(cfg, args.work_dir)
    cfg.launcher = args.launcher
    return cfg
