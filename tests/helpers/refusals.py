"""What a test expects of a check: that it passes, or an error with a message."""
from contextlib import AbstractContextManager, nullcontext

import pytest


def refused(message: str | None, error: type[Exception] = ValueError) -> AbstractContextManager:
    """A block that raises an error whose message has a pattern; with None one that raises nothing.
    """
    return nullcontext() if message is None else pytest.raises(error, match=message)
