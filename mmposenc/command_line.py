"""How the tools speak: one way to read arguments, errors in a line, a start without noise.

Only the standard library is imported, so that a wrong argument is told at once.
"""
from __future__ import annotations

import argparse
import difflib
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

#: Exceptions whose message says everything; of others the type is told too.
_PLAIN = (ValueError, FileNotFoundError, NotADirectoryError, IsADirectoryError, FileExistsError,
          PermissionError)
_WIDTH = 600


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


class _Held:
    """A stream that keeps what is written to it until it is released, and passes it on from then.

    The logger of a run keeps the stream it was made with, so it stays one after the release.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.kept = stream, []  # type: tuple[TextIO, list[str] | None]

    def write(self, text: str) -> int:
        if self.kept is None:
            return self.stream.write(text)
        self.kept.append(text)
        return len(text)

    def release(self, *, drop: bool = False) -> None:
        kept, self.kept = self.kept or [], None
        if not drop:
            self.stream.write(''.join(kept))
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def reported(args: argparse.Namespace, *, hold: bool = False) -> Iterator[Callable[[], None]]:
    """Ends the program with ``error: ...`` in at most three lines and status 1 when a step raises.

    The traceback goes to the log file of the run, when there is one; ``--traceback`` shows it.

    Args:
        args: the parsed arguments.
        hold: keep everything that is printed until the function that this yields is called, or
            the end; an error before that is all that is seen.
    """
    before = _log_files()
    if hasattr(sys.stdout, 'reconfigure'):  # file names need not be text of any encoding
        sys.stdout.reconfigure(errors='backslashreplace')
    streams = sys.stdout, sys.stderr
    held = [_Held(stream) for stream in streams] if hold else []
    if hold:
        sys.stdout, sys.stderr = held  # type: ignore[assignment]

    def release(drop: bool = False) -> None:
        if held:
            sys.stdout, sys.stderr = streams
        while held:
            held.pop(0).release(drop=drop)
    try:
        yield release
    except Exception as error:
        release(drop=not getattr(args, 'traceback', False))
        raise SystemExit(_report(error, args, _log_files() - before)) from error
    finally:
        release()


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


def _log_files() -> set[str]:
    """The files that mmengine's loggers of this process write to."""
    module = sys.modules.get('mmengine.logging')
    loggers = getattr(module, 'MMLogger', None)
    return {os.path.relpath(handler.baseFilename)
            for logger in getattr(loggers, '_instance_dict', {}).values()
            for handler in logger.handlers if isinstance(handler, logging.FileHandler)}
