"""A small memory for tensors that depend only on grids and options.

Grids that take turns from batch to batch then cost nothing twice. What is kept is bounded in bytes,
is never handed out to be written to, and is a function of its key: results do not change.
"""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import TypeVar

import torch
from torch import Tensor

from .tracing import is_compiling

#: Bytes of all tensors that are kept, under 1 MiB; larger ones are computed each time.
MAX_BYTES = 960 * 1024

_T = TypeVar('_T')


class GridCache:
    """Values by key, the least recently used dropped first."""

    def __init__(self) -> None:
        self._values: OrderedDict[Hashable, tuple[object, int]] = OrderedDict()
        self._lock = Lock()
        self.bytes = 0

    def get(self, key: Hashable, make: Callable[[], _T], tensors: Callable[[_T], list[Tensor]]
            ) -> _T:
        """The value of ``key``, made if it is not there.

        Args:
            key: everything the value depends on: grids, options, dtype and device.
            make: computes it; without a gradient.
            tensors: those of a value, to know its size.
        """
        if not _may_keep():
            return make()
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key][0]  # type: ignore[return-value]
        # Tensors made in inference mode could not be used in training later.
        with torch.inference_mode(False), torch.no_grad():
            value = make()
        size = sum(each.untyped_storage().nbytes() for each in tensors(value))
        if size <= MAX_BYTES:
            self._keep(key, value, size)
        return value

    def _keep(self, key: Hashable, value: object, size: int) -> None:
        with self._lock:
            if key in self._values:  # another thread was faster
                return
            self._values[key] = value, size
            self.bytes += size
            while self.bytes > MAX_BYTES:
                self.bytes -= self._values.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Forget all tensors that are stored."""
        with self._lock:
            self._values.clear()
            self.bytes = 0


#: The one memory of the process.
CACHE = GridCache()


def _may_keep() -> bool:
    """Not while compiling, tracing, or under a mode that replaces tensors (fakes, counters)."""
    return not (is_compiling() or torch._C._len_torch_dispatch_stack()
                or torch._C._get_tracing_state() or torch._C._are_functorch_transforms_active())
