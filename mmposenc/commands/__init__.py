"""The console command ``mmposenc``: each command is a module, imported when it is used.

Each module has ``parse_args(argv)`` and ``main(argv)``. Only the standard library is imported here,
and no command imports torch or OpenMMLab at its top, so that help and argument errors appear at
once.
"""
from __future__ import annotations

import importlib
import sys
from collections.abc import Callable

import mmposenc

#: For each command (a module of this folder), its line in ``mmposenc --help``.
COMMANDS: dict[str, str] = {
    'quickstart': 'fetch data, train, test and draw: a first run in minutes',
    'train': 'train a detector, segmentor or classifier',
    'test': 'test a trained model, and draw its predictions',
    'predict': 'predict images, or folders of them',
    'compare': 'compare position encodings on a data set',
    'papers': "list papers' tables, write the config of a row, count its models",
    'convert': "convert an official checkpoint, or write weights under timm's names",
    'inspect': 'show where position encodings sit, what they cost and what they do',
    'browse': 'draw the training images after augmentation',
    'prepare': 'download a small data set or weights, or convert your own labels',
    'export': 'write a model as an ONNX file or an exported program',
    'run': "run a script, such as one of mmdet's tools, with mmposenc imported first",
}


def usage_text() -> str:
    """The text of ``mmposenc --help``."""
    lines = [f'    {name:<14}{line}' for name, line in COMMANDS.items()]
    return '\n'.join(['usage: mmposenc COMMAND ...', '', *lines, '',
                      'mmposenc COMMAND --help explains a command; mmposenc --version prints the '
                      'version.'])


def main(argv: list[str] | None = None) -> None:
    """Run a command.

    Args:
        argv: name and arguments of the command; None: those of the process.

    Raises:
        SystemExit: with status 2 if there is no such command.
    """
    name, *words = (sys.argv[1:] if argv is None else argv) or ['']
    if name == 'run':  # What the script does with its standard streams is left to it.
        _run_command(name, words)
        return
    from ..terminal.streams import safe_streams
    with safe_streams():
        _run_command(name, words)


def _run_command(name: str, words: list[str]) -> None:
    if name in ('', '-h', '--help'):
        print(usage_text())
        sys.exit(0 if name else 2)
    if name == '--version':
        print(mmposenc.__version__)
        return
    if name not in COMMANDS:
        from ..terminal.messages import suggestion_text
        print(f'error: there is no command {name!r}{suggestion_text(name, COMMANDS)}\n'
              f'(known are {", ".join(COMMANDS)})', file=sys.stderr)
        sys.exit(2)
    _import_main(name, words)(words)


def _import_main(name: str, words: list[str]) -> Callable[[list[str]], None]:
    """Import the function of a command. If a package is missing, the program ends with a message of
    one line."""
    import argparse

    from ..terminal.messages import reporting_errors
    with reporting_errors(argparse.Namespace(traceback='--traceback' in words)):
        main: Callable[[list[str]], None] = importlib.import_module(
            f'{__name__}.{name}').main
    return main
