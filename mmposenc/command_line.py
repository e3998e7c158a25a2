"""How the tools speak: one way to read arguments, errors in a line, a start without noise.

Only the standard library is imported, so that a wrong argument is reported at once.
"""
from __future__ import annotations

import argparse
import difflib
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TextIO

#: Exceptions whose message says everything; of others the type is printed too.
_PLAIN = (ValueError, FileNotFoundError, NotADirectoryError, IsADirectoryError, FileExistsError,
          PermissionError)
_WIDTH = 600
#: Packages whose prints and notes are for the log file.
LIBRARIES = {'mmengine', 'mmcv', 'mmdet', 'mmseg', 'mmpretrain', 'pycocotools',
             'faster_coco_eval'}
#: Modules between who says something and where it is said.
_BETWEEN = {'logging', 'mmengine.logging', 'mmengine.logging.logger',
            'mmposenc.operators.finders'}


class Parser(argparse.ArgumentParser):
    """argparse's, with the docstring as it is, ``--traceback``, and errors of two lines."""

    def __init__(self, description: str | None = None, **kwargs: Any) -> None:
        kwargs.setdefault('formatter_class', argparse.RawDescriptionHelpFormatter)
        super().__init__(description=description, **kwargs)
        self.add_argument('--traceback', action='store_true', default=argparse.SUPPRESS,
                          help='show where an error comes from; else the log file has it')

    def error(self, message: str) -> Any:
        script = 'python ' if self.prog.endswith('.py') else ''
        self.exit(2, f'error: {message}\n({script}{self.prog} --help lists the arguments)\n')


class Prints:
    """A standard output. What libraries print goes to the log file of the run instead, or nowhere
    where there is none, unless it is called a warning or an error."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.passed = stream, False

    def write(self, text: str) -> int:
        if of_a_library(sys._getframe(1)):
            for handler in _log_handlers(_loggers()[-1:]):
                if handler.stream is not None:
                    handler.stream.write(text)
            # print() writes the end of a line by itself.
            self.passed = bool(re.search('warning|error', text, re.I)) or (
                self.passed and not text.strip())
            if not self.passed:
                return len(text)
        return self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def of_a_library(frame: FrameType | None) -> bool:
    """Whether a line of code that prints or logs is one of :data:`LIBRARIES`; what it calls to do
    so is left out."""
    while frame and frame.f_globals.get('__name__') in _BETWEEN:
        frame = frame.f_back
    name = str(frame.f_globals.get('__name__')) if frame else ''
    return name.partition('.')[0] in LIBRARIES


def _warn(message: Warning | str, category: type[Warning], filename: str, lineno: int,
          *rest: Any) -> None:
    """A warning of Python's in a line: through the logger of the run, where there is one."""
    if issubclass(category, (DeprecationWarning, FutureWarning)):
        return
    text = f'{str(message).strip()} ({filename}:{lineno})'
    if loggers := _loggers():
        loggers[-1].warning(text)
    else:
        print(f'warning: {text}', file=sys.stderr)


@contextmanager
def reported(args: argparse.Namespace) -> Iterator[None]:
    """Ends the program with ``error: ...`` in at most three lines and status 1 when a step raises;
    keeps what libraries print off the console.

    The traceback goes to the log file of the run, when there is one; ``--traceback`` shows it.
    """
    before, stdout, showwarning = _log_files(), sys.stdout, warnings.showwarning
    if hasattr(stdout, 'reconfigure'):  # file names need not be text of any encoding
        stdout.reconfigure(errors='backslashreplace')
    sys.stdout, warnings.showwarning = Prints(stdout), _warn  # type: ignore[assignment]
    try:
        yield
    except Exception as error:
        raise SystemExit(_report(error, args, _log_files() - before)) from error
    finally:
        sys.stdout, warnings.showwarning = stdout, showwarning


def _report(error: Exception, args: argparse.Namespace, logs: set[str]) -> str:
    full = ''.join(traceback.format_exception(error))
    for path in logs:
        with open(path, 'a', errors='backslashreplace') as file:
            file.write(f'\n{full}')
    if getattr(args, 'traceback', False):
        print(full, file=sys.stderr)
    lines = describe(error).splitlines() or ['']
    rank = os.environ.get('RANK', '0')
    lines[0] = f'error: {lines[0]}' if rank == '0' else f'error in process {rank}: {lines[0]}'
    if logs:
        most, where = 2, f'all of it is in {sorted(logs)[0]}'
    else:
        most, where = 2 if len(lines) > 3 else 3, '--traceback shows all of it'
    cut = [line if len(line) <= _WIDTH else f'{line[:_WIDTH]} ...' for line in lines[:most]]
    if len(lines) > most:
        left = len(lines) - most
        where = f'{left} more line{"s" * (left > 1)}; {where}'
    return '\n'.join(cut + [f'({where})'] * (bool(logs) or len(lines) > most))


def describe(error: BaseException) -> str:
    """What an exception says, without what its travels added to it."""
    text = str(error).strip()
    kind = type(error).__name__
    told = list(re.finditer(r'^(?:[\w.]+\.)?(\w+(?:Error|Exception|Warning)): ', text, re.M))
    if 'Traceback (most recent call last)' in text and told:  # a worker of a data loader sent it
        kind, text = told[-1][1], text[told[-1].end():].strip()
    text = re.sub(r'^(class `\w+` in \S+\.py: )+', '', text)  # mmengine's registries add these
    plain = isinstance(error, _PLAIN) or kind in ('PrepareError', 'ProcessLost', 'ValueError')
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        text, plain = f'{error.filename}: {error.strerror}', True
    if isinstance(error, KeyError) and len(text) > 2:
        text = text[1:-1] if text[0] == text[-1] and text[0] in '\'"' else text
    return text if plain and text else f'{kind}: {text}' if text else kind


def in_a_line(error: BaseException) -> str:
    """What an exception says, on one line."""
    return ' '.join(describe(error).split())


def suggest(name: str, known: Iterable[str]) -> str:
    """What is known and comes close, as the end of a message."""
    close = difflib.get_close_matches(name, known, n=3)
    return f'; did you mean {" or ".join(map(repr, close))}?' if close else ''


def _loggers() -> list[logging.Logger]:
    """mmengine's of this process, the newest last."""
    module = sys.modules.get('mmengine.logging')
    loggers = getattr(getattr(module, 'MMLogger', None), '_instance_dict', {})
    return list(loggers.values())


def _log_handlers(loggers: list[logging.Logger]) -> list[logging.FileHandler]:
    return [handler for logger in loggers for handler in logger.handlers
            if isinstance(handler, logging.FileHandler)]


def _log_files() -> set[str]:
    return {os.path.relpath(handler.baseFilename) for handler in _log_handlers(_loggers())}
