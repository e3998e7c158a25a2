"""Options that several commands share; ``engine/config/options.py`` applies them.

Only the standard library is imported, so help and argument errors appear before torch is loaded.
"""
from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence

from .messages import Parser

#: The default of ``--size`` in words; ``engine/config/parsed.py`` computes it.
USUAL = ('the size that the config trains with, reduced to the number of pixels of 512 x 512 if it '
         'is larger; 224 x 224 if the config has none')

#: The largest difference between an exported file and the model, relative to the output. float32
#: rounds at 6e-8, and runtimes add in another order: after some hundred layers the difference is
#: about 1e-5, and the limit is ten times that. A wrong graph differs by 1e-2 and more.
TOLERANCE = 1e-4

#: The words of ``mmposenc compare``, whose classes would load torch.
WORDS = (
    'none, factorized, learned, sincos, windowed-table, contextpool, conv-mlp, fourier, peg, '
    'peg-bn, alibi, cope, decomposed, dpb, fire, gta, huang, irpe-k, irpe-q, irpe-v, irpe-qk, '
    'irpe-qkv, irpe-bias, kerple, kerple-power, crpe, lepe, log-cpb, lookhere, lookhere-90, '
    'lookhere-45, comrope, comrope-ap, liere, pape, pape-ri, query-absolute-1d, '
    'query-relative-1d, query-relative-2d, swin-bias, rotary, rotary-shares, rotary-mixed, '
    'rotary-spiral, rotary-golden, rotary-ntk, rotary-yarn, rotary-entropy, sasa, shaw, '
    'transformer-xl, undirected-bias')


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """Make an argparse type: a whole number within limits."""
    limits = f'of at least {least}' if most is None else f'from {least} to {most}'

    def number_of(text: str) -> int:
        number = int(text) if re.fullmatch('-?[0-9]+', text) else least - 1
        if number < least or (most is not None and number > most):
            raise argparse.ArgumentTypeError(f'{text!r} must be a whole number {limits}')
        return number
    return number_of


def number_between(least: float, most: float, required: str) -> Callable[[str], float]:
    """Make an argparse type: a number between two others, which are excluded."""
    def number_of(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = least
        if not least < number < most:
            raise argparse.ArgumentTypeError(f'{text!r} must be a number {required}')
        return number
    return number_of


#: Argparse types for a count, a side in pixels, and a seed.
COUNT = whole_number(1)
SIDE, SEED = whole_number(1, 2 ** 16), whole_number(0, 2 ** 32 - 1)


def size_or(other: Callable[[str], float]) -> Callable[[str], float | str]:
    """Make an argparse type: a height and a width in pixels as 'HEIGHTxWIDTH', which stay text, or
    a number of another type."""
    def size_of(text: str) -> float | str:
        height, x, width = text.lower().partition('x')
        return f'{SIDE(height)}x{SIDE(width)}' if x else other(text)
    return size_of


def sides_of_option(parser: argparse.ArgumentParser, size: Sequence[int]) -> tuple[int, int]:
    """The size (H, W) that the one or two numbers of ``--size`` give."""
    if len(size) > 2:
        parser.error(f'--size {" ".join(map(str, size))}: give H W, or one number')
    return size[0], size[-1]


def refuse_given(parser: argparse.ArgumentParser, args: argparse.Namespace, needed: str,
                 *names: str) -> None:
    """End the program with an error if one of these options is given without the option that it
    needs."""
    for name in names:
        if getattr(args, name) != parser.get_default(name):
            parser.error(f'--{name.replace("_", "-")} does nothing without {needed}')


def make_config_parser(description: str | None, example: str, prog: str | None = None) -> Parser:
    """Make a parser with ``config``, ``--cfg-options`` and ``--data``.

    Args:
        description: text of the help: the docstring of the command.
        example: a KEY=VALUE for the help of ``--cfg-options``.
        prog: the command as typed, 'mmposenc train'; None: the name of the script.
    """
    parser = Parser(description, prog=prog)
    add_config(parser, example)
    return parser


def add_encoding(parser: argparse.ArgumentParser) -> None:
    """Add ``--encoding``."""
    parser.add_argument('--encoding', metavar='NAME', help='put these position encodings into the '
                        'model: a word, a sum as peg+irpe-k, or own.py:MyEncoding. Words: '
                        f'{WORDS}')


def add_config(parser: argparse.ArgumentParser, example: str) -> None:
    """Add ``config``, ``--cfg-options`` and ``--data`` to a parser."""
    parser.add_argument('config', help='a file, or mmposenc::<name>, mmdet::<name>')
    parser.add_argument('--cfg-options', nargs='+', action='extend', type=_checked_key_value,
                        metavar='KEY=VALUE',
                        help=f'override the config: {example}, key="[a,b]" or key=a,b for '
                        'lists; in place of a tuple and for sizes in pipelines, such as '
                        '...pipeline.1.scale=320,240, a list becomes a tuple')
    parser.add_argument('--data', metavar='DIR', help='your own data set: as mmposenc prepare '
                        '--from writes it, or folders train/CLASS and val/CLASS of pictures; '
                        'names and number of classes are taken from it')


def _checked_key_value(word: str) -> str:
    """Check that a word has the form KEY=VALUE; mmengine reads the value later."""
    if '=' not in word:
        raise argparse.ArgumentTypeError(f'{word!r} is not KEY=VALUE')
    return word


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that training and testing share."""
    parser.add_argument('--work-dir', help='folder of logs and results (default: work_dir of the '
                        'config, or work_dirs/<name of the config>, with _<NAME> of --encoding)')
    add_encoding(parser)
    parser.add_argument('--allow-mismatch', action='store_true', help='load the matching weights '
                        'of a checkpoint that does not fit the model, instead of stopping')
    parser.add_argument('--compile', action='store_true', help='torch.compile for the blocks of '
                        'the model (mmposenc.CompileHook); the first steps are slower')
    parser.add_argument('--launcher', choices=['none', 'pytorch', 'slurm', 'mpi'], default='none')
