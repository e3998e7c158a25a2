"""The moment when everything is built and loaded and the first iteration is next."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mmengine.hooks import Hook


class StartHook(Hook):
    """Calls a function once, just before the first iteration of training, validation or testing.

    Args:
        started: what to call.
    """
    priority = 'LOWEST'

    def __init__(self, started: Callable[[], None]) -> None:
        self.started = started

    def before_train(self, runner: Any) -> None:
        self.started()

    def before_val(self, runner: Any) -> None:
        self.started()

    def before_test(self, runner: Any) -> None:
        self.started()
