"""The argument parser, short error messages and a quiet console.
"""
from __future__ import annotations

import argparse
import difflib
import logging
import os
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn, TextIO, cast

from .streams import LastingStream

#: Exceptions whose message is enough; for others the message begins with their type.
_PLAIN = (ValueError, FileNotFoundError, NotADirectoryError, IsADirectoryError, FileExistsError,
          PermissionError)
_WIDTH = 600
#: After so many seconds without a line a command says that it works.
SILENCE = 5.0
#: Lines that pycocotools and mmdet print while they read annotations and evaluate, and mmengine
#: when it loads a checkpoint.
_CHATTER = re.compile(r'loading annotations into|creating index|index created|running per image|'
                      r'loading and preparing|evaluate annotation type|accumulating|done \(t=|'
                      r' ?average (?:precision|recall) |loads checkpoint by', re.I)

#: Warnings of libraries about a choice that is as good as what they suggest, and about an array
#: that nothing writes to.
_HINTS = re.compile('For binary segmentation, we suggest using|'
                    'The given NumPy array is not writable')


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that keeps the line breaks of the docstring, has ``--traceback``, and
    reports an error in two lines."""

    def __init__(self, description: str | None = None, **kwargs: Any) -> None:
        kwargs.setdefault('formatter_class', argparse.RawDescriptionHelpFormatter)
        super().__init__(description=description, **kwargs)
        self.add_argument('--traceback', action='store_true', default=argparse.SUPPRESS,
                          help='print the traceback of an error (the log file always has it)')

    def error(self, message: str) -> NoReturn:
        script = 'python ' if self.prog.endswith('.py') else ''
        self.exit(2, f'error: {message}\n({script}{self.prog} --help lists the arguments)\n')


class QuietOutput(LastingStream):
    """A standard output without what libraries print about their files."""

    dropped, used = False, False

    def write(self, text: str) -> int:
        # print() writes the end of a line in a separate call.
        self.dropped = bool(_CHATTER.match(text)) or self.dropped and text == '\n'
        self.used |= not self.dropped
        return len(text) if self.dropped else super().write(text)


def _warn(message: Warning | str, category: type[Warning], filename: str, lineno: int,
          file: TextIO | None = None, line: str | None = None) -> None:
    """Show a Python warning as one line, through the logger of the run if there is one."""
    if issubclass(category, (DeprecationWarning, FutureWarning)) or _HINTS.match(str(message)):
        return
    text = f'{str(message).strip()} ({filename}:{lineno})'
    if loggers := _loggers():
        loggers[-1].warning(text)
    else:
        print(f'warning: {text}', file=sys.stderr)


class Ended(SystemExit):
    """Ends a command that has said why, or was asked to end."""


@contextmanager
def naming_errors(what: str) -> Iterator[None]:
    """A context for code of the user's: whatever it raises, also by sys.exit(), becomes a
    ValueError that begins with ``what``."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if _is_own_end(error):
            raise
        raise ValueError(f'{what}: {error_text(error)}') from error


def _is_own_end(error: BaseException) -> bool:
    """Whether an exception is the project's way to end a command; its classes derive from
    SystemExit, which sys.exit() raises itself."""
    return isinstance(error, SystemExit) and type(error) is not SystemExit


@contextmanager
def reporting_errors(args: argparse.Namespace, *, only_prints: bool = False) -> Iterator[None]:
    """End the program with ``error: ...`` in at most three lines and status 1 if the body raises,
    and keep the output of libraries off the console. After :data:`SILENCE` without a line, one says
    that the command loads what it needs.

    The traceback goes to the log file of the run, when there is one; ``--traceback`` shows it.
    Ctrl-C and SIGTERM end the program without one, and with the status that shells give them;
    files that are half written are removed as after an error. Where standard output cannot be
    written, in :func:`~.streams.lasting_streams`, the body goes on to its end; if it
    ``only_prints``, the status then says so.
    """
    before, stdout, showwarning = _log_file(), sys.stdout, warnings.showwarning
    # The name of a file may not be valid in the console's encoding.
    if hasattr(stdout, 'reconfigure'):
        stdout.reconfigure(errors='backslashreplace')
    output = QuietOutput(stdout)
    sys.stdout, warnings.showwarning = cast(TextIO, output), _warn
    terminate = signal.signal(signal.SIGTERM, _end)
    loading = threading.Timer(SILENCE, _say_that_it_loads, [output])
    loading.daemon = True
    loading.start()
    try:
        yield
        sys.stdout.flush()
        if only_prints and (lost := getattr(stdout, 'error', None)):
            raise Ended(128 + signal.SIGPIPE if isinstance(lost, BrokenPipeError) else 1)
    except KeyboardInterrupt as stop:
        print('stopped', file=sys.stderr)
        raise Ended(128 + signal.SIGINT) from stop
    except (Exception, SystemExit) as error:
        if _is_own_end(error):
            raise
        log = None if _log_file() == before else _log_file()
        raise Ended(_log_and_message(error, args, log)) from error
    finally:
        loading.cancel()
        sys.stdout, warnings.showwarning = stdout, showwarning
        signal.signal(signal.SIGTERM, terminate)


def _say_that_it_loads(output: QuietOutput) -> None:
    if not output.used and os.environ.get('RANK', '0') == '0':
        print('loading libraries, config and data', file=sys.stderr, flush=True)


def _end(signum: int, frame: FrameType | None) -> None:
    raise Ended(128 + signum)


def _log_and_message(error: BaseException, args: argparse.Namespace, log: str | None) -> str:
    full = ''.join(traceback.format_exception(error))
    try:
        if log:
            with open(log, 'a', encoding='utf-8', errors='backslashreplace') as file:
                file.write(f'\n{full}')
    except OSError:  # On a full disk, which may be the error, the log cannot be written either.
        log = None
    if getattr(args, 'traceback', False):
        print(full, file=sys.stderr)
    lines = [printable(line) for line in error_text(error).splitlines()] or ['']
    rank = os.environ.get('RANK', '0')
    lines[0] = f'error: {lines[0]}' if rank == '0' else f'error in process {rank}: {lines[0]}'
    where = f'the full message is in {log}' if log else '--traceback shows the full message'
    cut = [line if len(line) <= _WIDTH else f'{line[:_WIDTH]} ...' for line in lines[:2]]
    if len(lines) > 2:
        where = f'{counted(len(lines) - 2, "more line")}; {where}'
    if log or len(lines) > 2:
        cut.append(f'({where})')
    return '\n'.join(cut)


def error_text(error: BaseException) -> str:
    """The message of an exception, without text that worker processes and registries add."""
    if type(error) is SystemExit:
        return f'sys.exit({error.code!r}) was called{_raised_at_text(error)}; take it out'
    if isinstance(error, ModuleNotFoundError):
        from mmposenc.dependencies import HOW_TO_INSTALL, is_importable
        if not is_importable('mmengine'):
            return f'{error}. {HOW_TO_INSTALL}'
    text = str(error).strip()
    kind = type(error).__name__
    raised = list(re.finditer(r'^(?:[\w.]+\.)?(\w+(?:Error|Exception|Warning))(?:: |$)', text,
                              re.M))
    # The error was raised in a worker of the data loader.
    if 'Traceback (most recent call last)' in text and raised:
        kind, text = raised[-1][1], text[raised[-1].end():].strip()
    # mmengine's registries add these prefixes.
    text = re.sub(r'^(class `\w+` in \S+\.py: )+', '', text)
    plain = isinstance(error, _PLAIN) or kind in ('PrepareError', 'ValueError')
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        text, plain = f'{printable(error.filename)}: {error.strerror}', True
    if isinstance(error, KeyError) and len(text) > 2:
        text = text[1:-1] if text[0] == text[-1] and text[0] in '\'"' else text
    if not text:
        return f'{kind}{_raised_at_text(error)}'
    return text if plain else f'{kind}: {text}'


def _raised_at_text(error: BaseException) -> str:
    """The end of a sentence: where an error without a message was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ''
    package = frames[-1].filename.rpartition('site-packages' + os.sep)[2]
    return f' in {package}, line {frames[-1].lineno}: {frames[-1].line}'


def in_a_line(error: BaseException) -> str:
    """The message of an exception in one line, without control characters."""
    return printable(' '.join(error_text(error).split()))


def printable(text: object) -> str:
    """Text for a console: a control character, which the name of a file may hold to move the cursor
    or to forge a line, is written as an escape such as \\x1b or \\n."""
    return ''.join(each if each.isprintable() else each.encode('unicode_escape').decode()
                   for each in str(text))


def comment_lines(*lines: str) -> str:
    """Comments for a file of Python, a line each, whatever stands in the text."""
    return ''.join(f'# {printable(line)}\n' for line in lines)


def counted(number: int, noun: str) -> str:
    """A number and its noun, with an s unless it is one: '1 image', '2,304 parameters'."""
    return f'{number} {noun}' if number == 1 else f'{number:,} {noun}s'


def suggestion_text(name: str, known: Iterable[str]) -> str:
    """The end of an error message: known names that are similar to ``name``, also if they differ in
    capitals."""
    names = {each.lower(): each for each in known}
    close = [names[each] for each in difflib.get_close_matches(name.lower(), names, n=3)]
    return f'; did you mean {" or ".join(map(repr, close))}?' if close else ''


def _loggers() -> list[logging.Logger]:
    """mmengine's loggers of this process, the newest last."""
    module = sys.modules.get('mmengine.logging')
    loggers = getattr(getattr(module, 'MMLogger', None), '_instance_dict', {})
    return list(loggers.values())


def _log_file() -> str | None:
    """The path of the log of the newest run in this process."""
    handlers = _loggers()[-1].handlers if _loggers() else []
    files = [each.baseFilename for each in handlers if isinstance(each, logging.FileHandler)]
    return os.path.relpath(files[0]) if files else None
