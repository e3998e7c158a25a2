"""The console command ``mmposenc``: one module a command, imported when it is asked for.

Each module has ``parse_args(argv)`` and ``main(argv)``; scripts in tools/ call the same. Only the
standard library is imported here, and neither torch nor OpenMMLab at the head of a command, so that
help, errors of names and arguments come at once.
"""
from __future__ import annotations

import importlib
import sys
from collections.abc import Callable

import mmposenc

#: By name: the module in this folder, and what ``mmposenc --help`` says of it.
COMMANDS: dict[str, tuple[str, str]] = {
    'quickstart': ('quickstart', 'fetch data, train, test and draw: a first run in minutes'),
    'train': ('train', 'train a detector, segmentor or classifier'),
    'test': ('test', 'test one, and draw its predictions'),
    'predict': ('predict', 'predict pictures, folders or videos'),
    'compare': ('compare', 'compare position encodings on a data set'),
    'papers': ('papers', "list papers' tables, write the config of a row, check counts"),
    'convert': ('convert', "convert an official checkpoint, or weights of ours to timm's names"),
    'figures': ('figures', 'draw what position encodings do'),
    'diagnose': ('diagnose', 'measure what a model knows of places, without training'),
    'complexity': ('complexity', 'count parameters, multiply-accumulates and activations'),
    'browse': ('browse', 'draw what goes into the network'),
    'prepare': ('prepare', 'fetch data sets, check a copy of one, or convert your own labels'),
    'cache': ('cache', 'compute the features of a frozen backbone beforehand'),
    'export': ('export', 'write a model as an ONNX file or an exported program'),
    'push': ('push', 'write a model as a repository, or upload it'),
    'run': ('run', 'run a script, of mmdet for example, with mmposenc imported first'),
    'show-metrics': ('show_metrics', 'print what tests left behind as a table'),
}


def usage() -> str:
    """What ``mmposenc --help`` prints."""
    lines = [f'    {name:<14}{line}' for name, (_, line) in COMMANDS.items()]
    return '\n'.join(['usage: mmposenc COMMAND ...', '', *lines, '',
                      'mmposenc COMMAND --help says more; mmposenc --version says the version.'])


def main(argv: list[str] | None = None) -> None:
    """Runs a command.

    Args:
        argv: its name and its arguments; None: those of the process.

    Raises:
        SystemExit: with status 2 where there is no such command.
    """
    name, *words = (sys.argv[1:] if argv is None else argv) or ['']
    if name in ('', '-h', '--help'):
        print(usage())
        sys.exit(0 if name else 2)
    if name == '--version':
        print(mmposenc.__version__)
        return
    if name not in COMMANDS:
        from ..command_line import suggest
        print(f'error: there is no command {name!r}{suggest(name, COMMANDS)}\n'
              f'(known are {", ".join(COMMANDS)})', file=sys.stderr)
        sys.exit(2)
    _load(name, words)(words)


def _load(name: str, words: list[str]) -> Callable[[list[str]], None]:
    """The function of a command; what it needs and is not installed ends the program in a line."""
    import argparse

    from ..command_line import reported
    with reported(argparse.Namespace(traceback='--traceback' in words)):
        main: Callable[[list[str]], None] = importlib.import_module(
            f'{__name__}.{COMMANDS[name][0]}').main
    return main
