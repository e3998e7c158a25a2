"""Bytes of the stand-in's tensors that live at once."""
from __future__ import annotations

import weakref
from contextlib import contextmanager
from typing import Any

from torch import Tensor


class Memory:
    """Bytes that are alive now and the most there were, each storage once.

    Workspaces of kernels are not seen, and what a GPU's allocator rounds up is not added.
    """

    def __init__(self) -> None:
        self.now, self.peak = 0, 0
        self._owners: dict[int, int] = {}
        self._counts = True

    def add(self, elem: Tensor) -> None:
        """Count a tensor's storage until its last tensor is gone."""
        if not self._counts:
            return
        storage = elem.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        self._owners[key] = self._owners.get(key, 0) + 1
        if self._owners[key] == 1:
            self.now += size
            self.peak = max(self.peak, self.now)
        weakref.finalize(elem, self._drop, key, size)

    def _drop(self, key: int, size: int) -> None:
        self._owners[key] -= 1
        if not self._owners[key]:
            del self._owners[key]
            self.now -= size

    @contextmanager
    def uncounted(self) -> Any:
        """What is made inside is inside a kernel."""
        before, self._counts = self._counts, False
        try:
            yield
        finally:
            self._counts = before
