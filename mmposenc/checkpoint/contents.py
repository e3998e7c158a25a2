"""What a checkpoint may hold: everything that leaves its pickle is made anew of plain types.

``torch.load(weights_only=True)`` runs no code of a file, but it calls the functions of its own list
with the file's arguments, and it sets attributes. What these can do, in torch 2.13:

- ``torch.Tensor(1000)``, ``torch.FloatTensor`` and ``torch.UntypedStorage`` give memory of this
  process as it is, and so does a file of torch before 1.6 that names a storage without its numbers.
- A tensor may have the attribute ``clone``, an OrderedDict ``items``: whatever is called then is
  the file's choice. A Parameter has its hooks from the file.
- Four bytes can be expanded to 2**40 numbers. Those of sparse tensors are read at indices of the
  file; tensors on 'meta' have none, those of quantized and nested ones are in another form. Sizes,
  strides and offsets beyond a storage are refused by torch.
- NumPy's ``ndarray`` and ``dtype`` read at addresses that the file chooses.
- ``torch.distributed`` and users add to the list; a DeviceMesh may wait for other processes.

So the list has only what stands below, and a tensor must lie in memory that was filled from the
file.
"""
from __future__ import annotations

import pickle
import re
import sys
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_HISTORY = 'mmengine.logging.history_buffer'
#: Names of the statistics of mmengine's HistoryBuffer, which a training checkpoint looks up by
#: getattr.
_STATISTICS = ('min', 'max', 'current', 'mean')
_VALUES = (type(None), bool, int, float, complex, str, bytes, bytearray, slice, torch.dtype,
           torch.device, torch.layout)
_LOCK = threading.Lock()


class _Record:
    """Stands for an object in a file: the arguments and the state that the file has of it."""

    state: Any = None

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Array(_Record):
    """Stands for numpy.ndarray."""


class _Dtype(_Record):
    """Stands for numpy.dtype."""


class _History(_Record):
    """Stands for mmengine's HistoryBuffer."""


class _Ignored(_Record):
    """Stands for objects in a file that nothing here reads."""


def _reconstruct(*arguments: object) -> _Array:
    """Stands for NumPy's function, which gives an empty array for the state that follows."""
    return _Array()


def _scalar(dtype: _Dtype, content: bytes) -> Any:
    """Stands for NumPy's function of this name."""
    return _numbers((), dtype, False, content)[()]


def _statistic(owner: object, name: object) -> None:
    """Stands for getattr, by which a file could reach any code; HistoryBuffer finds its methods
    itself."""
    if owner is not _History or name not in _STATISTICS:
        raise pickle.UnpicklingError(
            f'Weights only load failed: Unsupported getattr of {owner!r}, {name!r}')


def _numbers(shape: Any, dtype: _Dtype, by_columns: object, content: bytes) -> np.ndarray:
    """A new array of numbers or texts from the bytes of a file.

    Raises:
        UnpicklingError: it is of another type, such as of objects.
        ValueError: it needs more bytes or fewer.
    """
    # A version, the order of bytes, what only arrays of several fields have, and the size.
    _, order, *fields, size = (dtype.state or (3, '=', None, None, None, -1))[:6]
    name = f'{order}{dtype.arguments[0]}'
    if not (re.fullmatch(r'[<>=|][biufcSU]\d{1,6}', name) and fields == [None] * 3
            and size in (-1, np.dtype(name).itemsize)):
        raise pickle.UnpicklingError(f'Weights only load failed: Unsupported array of {name}')
    array = np.frombuffer(content, name).reshape(shape, order='F' if by_columns else 'C')
    array.tolist()  # A number that is no character of a text is an error.
    return array.copy('K')


@contextmanager
def allowing_stand_ins() -> Iterator[None]:
    """A context in which torch.load(weights_only=True) accepts, besides its own list, only what is
    above."""
    if tuple(map(int, torch.__version__.split('.')[:2])) < (2, 6):
        yield  # This version of torch accepts no list of types, so it refuses training checkpoints.
        return
    # Files call NumPy's functions by the module in which they were when the file was written.
    allowed: list[Any] = [(function, f'numpy.{package}.multiarray.{name}') for name, function in (
        ('_reconstruct', _reconstruct), ('scalar', _scalar)) for package in ('core', '_core')]
    allowed += [(_Array, 'numpy.ndarray'), (_Dtype, 'numpy.dtype'), (slice, 'builtins.slice'),
                (_History, f'{_HISTORY}.HistoryBuffer'), (_Ignored, 'argparse.Namespace'),
                (_statistic, 'builtins.getattr')]
    with _LOCK:
        others = torch.serialization.get_safe_globals()
        torch.serialization.clear_safe_globals()
        try:
            with torch.serialization.safe_globals(allowed):
                yield
        finally:
            torch.serialization.add_safe_globals(others)


class Contents:
    """Makes what a file holds anew of plain types; what occurs twice in it is made once.

    Args:
        storages: the memory that was filled from the file.
    """

    def __init__(self, storages: list[torch.UntypedStorage]) -> None:
        self.sizes = {storage.data_ptr(): storage.nbytes() for storage in storages}
        self.made: dict[int, Any] = {}

    def plain(self, value: Any, name: str = '') -> Any:
        """The same value, of plain types.

        Args:
            value: what the unpickler returned.
            name: where it stands in the file, for messages.

        Raises:
            UnpicklingError: it is of another type, or a tensor without numbers.
        """
        kind: Any = type(value)
        if kind in _VALUES or isinstance(value, (np.generic, _Ignored)):
            return value
        if id(value) in self.made:
            return self.made[id(value)]
        if kind in (dict, OrderedDict, Counter):
            new = self.made[id(value)] = kind()  # Stored before it is filled: it may hold itself.
            for key, each in kind.items(value):
                new[self.plain(key)] = self.plain(each, f'{name}.{key}'.lstrip('.'))
            if '_metadata' in getattr(value, '__dict__', ()):
                new._metadata = self.plain(vars(value)['_metadata'])
        elif kind is list:
            new = self.made[id(value)] = []
            new += [self.plain(each, f'{name}[{i}]') for i, each in enumerate(value)]
        elif kind in (tuple, torch.Size, set):
            new = kind([self.plain(each, name) for each in value])
        elif kind in (Tensor, nn.Parameter):
            new = self._tensor(Tensor.detach(value), name)  # It has no attributes of the file.
        elif kind is _Array and value.state:
            new = _numbers(*value.state[1:])
        elif kind is _History:
            make: Callable | None = getattr(sys.modules.get(_HISTORY), 'HistoryBuffer', None)
            # Without mmengine, nothing here uses the rest of these files, so it is ignored.
            new = make and make(*(self.plain(value.state[key]) for key in (
                '_log_history', '_count_history', 'max_length')))
        else:
            raise pickle.UnpicklingError(f'{name} is a {kind.__qualname__}, which is no weight')
        self.made[id(value)] = new
        return new

    def _tensor(self, value: Tensor, name: str) -> Tensor:
        if not (value.is_meta or value.is_quantized or value.is_nested
                or value.layout != torch.strided):
            storage = value.untyped_storage()
            is_filled = self.sizes.get(storage.data_ptr()) == storage.nbytes()
            if value.numel() == 0 or is_filled and value.numel() <= max(storage.nbytes(), 1 << 28):
                return value
        raise pickle.UnpicklingError(
            f'{name} ({value.layout}, {value.dtype}, {value.device}) is no plain tensor with its '
            'numbers in the file: save it as a dense one, from a model that is in memory')
