"""Warnings in mmengine's log, and work that it does not mention."""
from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from mmengine.logging import MMLogger, print_log


def warn(message: str) -> None:
    """Log a warning by mmengine."""
    print_log(message, 'current', logging.WARNING)


@contextmanager
def quiet_log(hidden_level: int = logging.INFO) -> Iterator[None]:
    """A context in which messages of this level and below are not logged."""
    # mmengine's logger would go by its cache after logging.disable.
    logger = MMLogger.get_current_instance()
    level = logger.level
    logger.setLevel(max(level, hidden_level + 1))
    try:
        yield
    finally:
        logger.setLevel(level)
