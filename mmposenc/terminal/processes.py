"""Python processes that a command starts, or that torchrun has started."""
from __future__ import annotations

import os
import sys
from pathlib import Path

from .messages import printable

#: The folder that has this package.
_ROOT = str(Path(__file__).parents[2])


def python_command(code: str, *words: str) -> list[str]:
    """The command line that runs code in a new process, which finds modules where this one does.

    ``python -m`` and ``python -c`` look for modules in the current folder first, where a yaml.py
    or random.py may lie that has nothing to do with them; only Python 3.11 and later can be told
    not to. Here the path is replaced before anything is imported that is not built in.

    Args:
        code: what the process runs; ``sys`` is imported.
        words: the arguments that it sees.
    """
    path = [*filter(None, map(str, sys.path)), _ROOT]
    return [sys.executable, '-c', f'import sys; sys.path[:] = {path!r}; {code}', *words]


def print_in_first_process(line: str) -> None:
    """Print a line, in the first of torchrun's processes only, which are not connected yet."""
    if os.environ.get('RANK', '0') == '0':
        print(printable(line))
