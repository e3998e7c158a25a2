"""Standard output and error output that may be closed, full, or a pipe that nobody reads."""
from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO, cast


class LastingStream:
    """A stream whose first error is stored as ``error``. What is written after it is lost, and the
    work goes on."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.error = stream, cast(OSError | None, None)

    def write(self, text: str) -> int:
        self._try(self.stream.write, text)
        return len(text)

    def flush(self) -> None:
        self._try(self.stream.flush)

    def _try(self, call: Callable[..., object], *args: object) -> None:
        try:
            call(*args)
        except OSError as error:
            self.error = self.error or error
            with suppress(OSError):  # What the stream still holds goes nowhere, too.
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self.stream.fileno())
                os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def lasting_streams() -> Iterator[None]:
    """A context in which no write to standard output or error output raises an error. What was lost
    is said in one line, unless whoever reads the output, such as head, had enough."""
    for descriptor in (0, 1, 2):  # A file that is opened would get the number of a closed one.
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    before = sys.stdout, sys.stderr
    out, err = (LastingStream(each or open(os.devnull, 'w')) for each in before)
    sys.stdout, sys.stderr = cast(TextIO, out), cast(TextIO, err)
    try:
        yield
    finally:
        out.flush()
        if out.error is not None and out.error.errno != errno.EPIPE:
            print(f'warning: standard output cannot be written ({out.error.strerror}); what was '
                  'printed is lost', file=sys.stderr)
        err.flush()
        sys.stdout, sys.stderr = before
