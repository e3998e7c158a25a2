"""The one place where checkpoint files are read: only whole files, and none that would run code."""
from __future__ import annotations

import contextlib
import importlib
import pickle
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file as load_safetensors

from . import hub
from .integrity import damage_or_none

if TYPE_CHECKING:
    from torch.serialization import MAP_LOCATION

_HISTORY = 'mmengine.logging.history_buffer'
#: Names of the statistics of mmengine's HistoryBuffer, which a training checkpoint looks up by
#: getattr.
_STATISTICS = ('min', 'max', 'current', 'mean')
_DTYPES = ('bool', 'int8', 'uint8', 'int16', 'uint16', 'int32', 'uint32', 'int64', 'uint64',
           'float16', 'float32', 'float64', 'str', 'bytes')


def load_checkpoint(path: str | Path, map_location: MAP_LOCATION = 'cpu', *, mmap: bool = False
                    ) -> Mapping:
    """Read a file of torch.save or of safetensors without running any code it may hold.

    Besides what ``torch.load(weights_only=True)`` takes by itself, training checkpoints of mmengine
    may hold its HistoryBuffer (logged losses), and numbers and arrays of NumPy. The options of a
    training script (argparse.Namespace), which releases save with their weights, are ignored.

    Args:
        path: the file, or a folder of Hugging Face's with safetensors. A name that ends in
            .safetensors is read as such; ``hf://owner/name`` and ``timm://model`` are found and
            downloaded (:mod:`.hub`).
        map_location: as of torch.load.
        mmap: leave tensors in the file until they are used.

    Returns:
        The dict that was saved; of .safetensors, of tensors.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a damaged file, one that cannot be read without running code, or that holds
            something else than a dict; a folder without weights.
    """
    if hub.is_hub_name(path):
        return _load_pieces(hub.weight_files(str(path)), map_location)
    path = Path(path).expanduser()
    if path.name.endswith('.index.json'):
        path = path.parent
    if path.is_dir():
        return _load_pieces(hub.files_in_folder(path), map_location)
    if not path.is_file():
        raise FileNotFoundError(f'{path} is no file')
    if path.suffix == '.safetensors':
        device = map_location if isinstance(map_location, (str, torch.device)) else 'cpu'
        try:
            return load_safetensors(path, device=str(device))
        except (SafetensorError, OSError, ValueError) as error:
            raise ValueError(f'{path} cannot be read, it is cut short or no safetensors file: '
                             f'{error}') from error
    if reason := damage_or_none(path):
        raise ValueError(f'{path} cannot be read, {reason}')
    try:
        with allowing_safe_types():
            content = torch.load(str(path), map_location=map_location, weights_only=True,
                                 mmap=(mmap and zipfile.is_zipfile(path)) or None)
    except pickle.UnpicklingError as error:
        raise ValueError(_refusal_text(path, str(error))) from error
    except (RuntimeError, EOFError, OSError, ValueError, LookupError, TypeError, AttributeError,
            RecursionError, OverflowError) as error:
        raise ValueError(f'{path} cannot be read, it is cut short or no checkpoint: '
                         f'{str(error).splitlines()[0] if str(error) else error!r}') from error
    if not isinstance(content, Mapping):
        raise ValueError(f'{path} holds a {type(content).__name__}; a dict of weights is required')
    return content


def _load_pieces(files: list[Path], map_location: MAP_LOCATION) -> dict[str, object]:
    """Read the files of one model, which holds each weight once."""
    return {key: value for file in files
            for key, value in load_checkpoint(file, map_location).items()}


def _refusal_text(path: Path, error: str) -> str:
    """The error for a pickle that torch refused to read, with the reason: its content, or that it
    is no pickle."""
    if 'eights only' not in error and 'weights_only' not in error:
        return f'{path} cannot be read: {error}'
    reason = next((line.strip().removeprefix('WeightsUnpickler error: ').split(' was not')[0]
                   for line in error.splitlines() if 'nsupported' in line),
                  'it holds more than weights')
    return (f'{path} is refused: to read it, code that it holds would have to run ({reason}). If '
            'you trust where it comes from, take its weights out elsewhere, in an environment '
            f'that you can lose: python -c "import torch; c = torch.load(\'{path.name}\', '
            "map_location='cpu', weights_only=False); torch.save(c.get('state_dict', "
            "c.get('model', c)), 'weights.pth')\", and use weights.pth")


def allowing_safe_types() -> contextlib.AbstractContextManager:
    """A context in which torch.load(weights_only=True) accepts the types in checkpoints of
    mmengine."""
    if tuple(map(int, torch.__version__.split('.')[:2])) < (2, 6):
        # This version of torch accepts no list of types, so it refuses training checkpoints.
        return contextlib.nullcontext()
    core = 'numpy._core' if hasattr(np, '_core') else 'numpy.core'
    multiarray = importlib.import_module(f'{core}.multiarray')
    # Files call NumPy's functions by the module in which they were when the file was written.
    by_name = [(getattr(multiarray, name), f'numpy.{package}.multiarray.{name}')
               for name in ('_reconstruct', 'scalar') for package in ('core', '_core')]
    # Without mmengine, nothing here uses the rest of these files, so it is ignored.
    history = getattr(sys.modules.get(_HISTORY), 'HistoryBuffer', _Ignored)

    def statistic(owner: type, name: str) -> object:
        """Stands for getattr, by which a file could reach any code."""
        if owner is not history or name not in _STATISTICS:
            raise pickle.UnpicklingError(
                f'Weights only load failed: Unsupported getattr of {owner!r}, {name!r}')
        return getattr(owner, name, None)

    return torch.serialization.safe_globals([
        np.ndarray, np.dtype, *{type(np.dtype(name)) for name in _DTYPES}, *by_name,
        (slice, 'builtins.slice'), (history, f'{_HISTORY}.HistoryBuffer'),
        (_Ignored, 'argparse.Namespace'),
        (statistic, 'builtins.getattr')])


class _Ignored:
    """Stands for objects in a file that nothing here reads."""

    def __setstate__(self, state: object) -> None:
        """Ignore the state, which is none of the weights."""
