"""Options that several commands share; what they describe is read by ``engine/config/options.py``.

Only the standard library is imported: help and errors of arguments come before torch is loaded.
"""
from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Sequence

from .command_line import Parser

#: What ``engine/config/nodes.py`` chooses where no size is given, in words.
USUAL = ('the size that the config trains with, or as many pixels as 512 x 512 has where that is '
         'more; 224 x 224 where nothing says it')

#: The opset of ONNX files: the first with LayerNormalization, Gelu and resizing by antialias.
OPSET = 20

#: The largest difference of an exported file from the model, in shares of an output's size. float32
#: rounds at 6e-8 of a number, and runtimes add in other orders: some hundred layers make 1e-5 of
#: it, and ten times that is room. A graph that does something else is off by 1e-2 and more.
TOLERANCE = 1e-4


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """What reads a whole number from a word, within limits."""
    limits = f'of at least {least}' if most is None else f'from {least} to {most}'

    def number_of(text: str) -> int:
        number = int(text) if re.fullmatch('-?[0-9]+', text) else least - 1
        if number < least or (most is not None and number > most):
            raise argparse.ArgumentTypeError(f'{text!r} must be a whole number {limits}')
        return number
    return number_of


#: What reads how many of something, which of something, a side in pixels and a seed.
COUNT, INDEX = whole_number(1), whole_number(0)
SIDE, SEED = whole_number(1, 2 ** 16), whole_number(0, 2 ** 32 - 1)


def sides(parser: argparse.ArgumentParser, size: Sequence[int]) -> tuple[int, int]:
    """(H, W) of the one or two numbers of ``--size``."""
    if len(size) > 2:
        parser.error(f'--size {" ".join(map(str, size))}: give H W, or one number')
    return size[0], size[-1]


def refuse_without(parser: argparse.ArgumentParser, args: argparse.Namespace, wanted: str,
                   *names: str) -> None:
    """Ends the program where one of these options is given, which do nothing without another."""
    for name in names:
        if getattr(args, name) != parser.get_default(name):
            parser.error(f'--{name.replace("_", "-")} does nothing without {wanted}')


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
                        help='a file, or mmposenc::<name>, mmdet::<name>, or timm:<model>, a '
                        'classifier on the folder of --data')
    parser.add_argument('--cfg-options', nargs='+', action='extend', type=_key_value,
                        metavar='KEY=VALUE',
                        help=f'override the config: {example}, key="[a,b]" or key=a,b for lists')


def _key_value(word: str) -> str:
    """A word with a '=': its value is read beside the config, by mmengine."""
    if '=' not in word:
        raise argparse.ArgumentTypeError(f'{word!r} is not KEY=VALUE')
    return word


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """What training and testing have in common."""
    parser.add_argument('--work-dir', help='for logs and results; else the config\'s own, else '
                        'work_dirs/<name of the config>')
    parser.add_argument('--data', metavar='DIR', help='your own data set, as mmposenc prepare '
                        '--from writes it; names and number of classes are filled in')
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
