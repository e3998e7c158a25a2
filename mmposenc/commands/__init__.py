"""The console command ``mmposenc``: each command is a module, imported when it is used.

Each module has ``parse_args(argv)`` and ``main(argv)``. Only the standard library is imported here,
and no command imports torch or OpenMMLab at its top, so that help and argument errors appear at
once.
"""
from __future__ import annotations

import importlib
import sys

import mmposenc

from ..terminal.streams import lasting_streams

#: For each command (a module of this folder), its line in ``mmposenc --help``.
COMMANDS: dict[str, str] = {
    'quickstart': 'fetch data, train a detector, test and draw: a first run in minutes',
    'train': 'train a detector, segmentor or classifier',
    'test': 'test a trained model, and draw its predictions',
    'predict': 'predict images, or folders of them',
    'compare': 'compare position encodings on a data set',
    'papers': "list papers' tables, and what their models here have",
    'convert': "convert an official checkpoint, or write weights under timm's names",
    'inspect': 'show where position encodings sit, what they cost and what they do',
    'browse': 'draw the training images after augmentation',
    'prepare': 'download a small data set or weights, or convert your own labels',
    'export': 'write a model as an ONNX file',
    'run': "run a script, such as one of mmdet's tools, with mmposenc imported first",
}


def usage_text() -> str:
    """The text of ``mmposenc --help``."""
    lines = [f'    {name:<14}{line}' for name, line in COMMANDS.items()]
    return '\n'.join(['usage: mmposenc COMMAND ...', '', *lines, '',
                      'mmposenc COMMAND --help explains a command; mmposenc --version prints the '
                      'version.'])


@lasting_streams()
def main(argv: list[str] | None = None) -> None:
    """Run a command.

    Args:
        argv: name and arguments of the command; None: those of the process.

    Raises:
        SystemExit: with status 2 if there is no such command.
    """
    name, *words = (sys.argv[1:] if argv is None else argv) or ['']
    if name in ('', '-h', '--help'):
        print(usage_text())
        sys.exit(0 if name else 2)
    if name == '--version':
        print(mmposenc.__version__)
        return
    from argparse import Namespace

    from ..terminal.messages import reporting_errors, suggestion_text
    if name not in COMMANDS:
        print(f'error: there is no command {name!r}{suggestion_text(name, COMMANDS)}\n'
              f'(known are {", ".join(COMMANDS)})', file=sys.stderr)
        sys.exit(2)
    # A package that is missing is an error of one line.
    with reporting_errors(Namespace(traceback='--traceback' in words)):
        module = importlib.import_module(f'{__name__}.{name}')
    module.main(words)
