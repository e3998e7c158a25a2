"""The device of the checks: a GPU where test_accelerator.py asks for one (never tried), and else
the stand-in. Both are entered by ``with``, take tensors and modules, and count the host's waits."""
from __future__ import annotations

import contextlib
import copy
import os
import warnings
from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn

CUDA = torch.device('cuda', 0)


class Gpu:
    """A GPU, in full float32. Waits are those that torch warns about, by the line of Python that
    made them."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self.waits: list[warnings.WarningMessage] = []

    def __enter__(self) -> Gpu:
        from mmposenc.functional import grid_cache
        grid_cache.CACHE.clear()
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        self.waits = self._stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter('ignore')
        warnings.filterwarnings('always', 'called a synchronizing CUDA operation')
        torch.cuda.set_sync_debug_mode('warn')
        return self

    def __exit__(self, *args: Any) -> None:
        torch.cuda.set_sync_debug_mode('default')
        self._stack.close()

    def tensor(self, x: Tensor, requires_grad: bool = False) -> Tensor:
        """A copy on the device, of which nothing is noted."""
        with unwatched():
            return x.detach().to(CUDA, copy=True).requires_grad_(requires_grad)

    def module(self, module: nn.Module) -> nn.Module:
        """A copy on the device."""
        with unwatched():
            return copy.deepcopy(module).to(CUDA)

    def autocast(self, dtype: torch.dtype) -> Any:
        return torch.autocast('cuda', dtype)

    def report(self) -> Counter:
        """How often each line waited, for messages."""
        return Counter(Line(f'{each.filename}:{each.lineno}') for each in self.waits)


class Line(str):
    """Of a file, that made the host wait."""

    @property
    def where(self) -> str:
        return self[self.rindex('/mmposenc/') + 1:] if '/mmposenc/' in self else str(self)


@contextlib.contextmanager
def unwatched() -> Any:
    """Where waits are the checks' own."""
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode('default')
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


if os.environ.get('MMPOSENC_ACCELERATOR') == 'cuda':
    Device: Any = Gpu

    def to_cpu(x: Tensor) -> Tensor:
        """The numbers of a tensor, of which nothing is noted."""
        with unwatched():
            return x.detach().cpu()

    def overwrite(x: Tensor, value: Tensor) -> None:
        """Put numbers into a tensor, of which nothing is noted."""
        with unwatched():
            x.copy_(value)
else:
    from stand_in import StandIn as Device  # noqa: F401
    from stand_in import to_cpu

    def overwrite(x: Tensor, value: Tensor) -> None:
        to_cpu(x).copy_(value)
