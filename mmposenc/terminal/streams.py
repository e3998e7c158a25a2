"""Makes the standard output and error of a command safe: a reader that goes away or a full disk
does not end the work, and no long work is silent.

Only the standard library is imported.
"""
from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: After so many seconds without a line, one is written, unless a terminal shows a bar.
SILENCE = 25.0
#: What the process is doing at the moment, in words.
_activity = ''


class DroppingStream:
    """A standard stream that drops what cannot be written, so that the work does not end with an
    error.

    Args:
        stream: the stream; None, which Python gives a process without one, takes everything.

    Attributes:
        error: the first error of a write, or None.
        written: when something was written last, by ``time.monotonic``.
    """

    def __init__(self, stream: Any) -> None:
        # The null file also occupies the free number, so that no other file gets what is written to
        # it.
        self.stream = open(os.devnull, 'w') if stream is None else stream  # noqa: SIM115
        self.error: OSError | None = None
        self.written = time.monotonic()

    def write(self, text: str) -> int:
        self.written = time.monotonic()
        try:
            self.stream.write(text)
        except OSError as error:
            self._drop_from_now_on(error)
        return len(text)

    def flush(self) -> None:
        try:
            self.stream.flush()
        except OSError as error:
            self._drop_from_now_on(error)

    def _drop_from_now_on(self, error: OSError) -> None:
        """Send all further output, also that of C libraries and of workers, nowhere."""
        if self.error is not None:
            return
        self.error = error
        if self.stream in (sys.__stdout__, sys.__stderr__):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def safe_streams() -> Iterator[None]:
    """Let nothing that happens to the standard streams end the block, and write a line to the
    standard error where the block writes none for long.

    A reader that goes away (``| head``) or a stream that is closed (``>&-``) changes nothing. Any
    other error of the standard output, such as a full disk, ends the program with one line and
    status 1 when the block is done. Blocks in such a block do nothing.
    """
    if isinstance(sys.stdout, DroppingStream):
        yield
        return
    streams = sys.stdout, sys.stderr
    out, err = DroppingStream(sys.stdout), DroppingStream(sys.stderr)
    sys.stdout, sys.stderr = out, err
    ended: SystemExit | None = None
    try:
        with _never_silent(out, err):
            yield
    except SystemExit as stop:
        ended = stop
    finally:
        out.flush()
        err.flush()
        sys.stdout, sys.stderr = streams
    if ended is not None and ended.code not in (None, 0):
        raise ended
    if out.error is not None and out.error.errno != errno.EPIPE:
        raise SystemExit('error: the work is done, but the standard output could not be written: '
                         f'{out.error.strerror or out.error}')
    if ended is not None:
        raise ended


def note_activity(what: str) -> None:
    """Record what the process is doing, such as 'validation, image 3 of 120'. It is shown if
    nothing else is written for long."""
    global _activity
    _activity = what


@contextmanager
def _never_silent(out: DroppingStream, err: DroppingStream) -> Iterator[None]:
    if os.environ.get('RANK', '0') != '0' or out.stream.isatty():
        yield
        return
    ended = threading.Event()
    watch = threading.Thread(target=_watch, args=(out, err, ended), daemon=True, name='silence')
    note_activity('')
    watch.start()
    try:
        yield
    finally:
        ended.set()
        watch.join()


def _watch(out: DroppingStream, err: DroppingStream, ended: threading.Event) -> None:
    while True:
        due = max(out.written, err.written) + SILENCE
        if ended.wait(max(due - time.monotonic(), 0.01)):
            return
        if time.monotonic() >= max(out.written, err.written) + SILENCE:
            what = f': {_activity}' if _activity else ''
            err.write(f'{time.strftime("%H:%M:%S")} still working{what}\n')
            err.flush()
