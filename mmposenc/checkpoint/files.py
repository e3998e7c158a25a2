"""Checkpoint files: safe to read, .pth or .safetensors."""
from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .safetensors import read_safetensors, write_safetensors

_PICKLES = ('.pth', '.pt', '.bin', '.tar')
_WRAPPERS = ('state_dict', 'model', 'module')


class CheckpointFile(NamedTuple):
    """The weights of a file, and names of what else it holds (an optimizer's state, options)."""

    state_dict: dict[str, Tensor]
    ignored: list[str]


def read_checkpoint(path: str | Path) -> CheckpointFile:
    """Read the weights of a checkpoint without running any code it may hold.

    Args:
        path: .safetensors, or .pth, .pt, .bin, .tar of torch.save. Weights may lie under
            'state_dict', 'model' or 'module'; a prefix 'module.' of all of them is left out.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: for another kind of file, one that is cut short, one that cannot be read
            without running code, or one without weights.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f'{path} is no file')
    if path.suffix == '.safetensors':
        loaded: Any = read_safetensors(path)
    elif path.suffix in _PICKLES:
        loaded = _load_pickle(path)
    else:
        raise ValueError(f'{path} must end in .safetensors, {", ".join(_PICKLES)}')
    return _unwrap(loaded, path)


def _load_pickle(path: Path) -> Any:
    with open(path, 'rb') as file:
        start = file.read(1)
    if start != b'\x80' and not zipfile.is_zipfile(path):  # of a bare pickle, before torch 1.6
        raise ValueError(f'{path} cannot be read, it is cut short or no checkpoint')
    try:
        return torch.load(path, map_location='cpu', weights_only=True)
    except pickle.UnpicklingError as error:
        if 'eights only' not in str(error) and 'weights_only' not in str(error):
            raise ValueError(f'{path} cannot be read: {error}') from error
        reason = next((line.strip().removeprefix('WeightsUnpickler error: ').split(' was not')[0]
                       for line in str(error).splitlines() if 'nsupported' in line),
                      'it holds more than weights')
        raise ValueError(
            f'{path} is refused: to read it, code that it holds would have to run ({reason}). If '
            f'you trust where it comes from, take its weights out elsewhere, in an environment '
            f'that you can lose: python -c "import torch; c = torch.load(\'{path.name}\', '
            f"map_location='cpu', weights_only=False); torch.save(c.get('state_dict', "
            f"c.get('model', c)), 'weights.pth')\", and convert weights.pth") from error
    except (RuntimeError, EOFError, OSError, ValueError, LookupError) as error:
        raise ValueError(f'{path} cannot be read, it is cut short or no checkpoint: '
                         f'{str(error).splitlines()[0] if str(error) else error!r}') from error


def _unwrap(loaded: Any, path: Path) -> CheckpointFile:
    ignored: list[str] = []
    if not isinstance(loaded, Mapping):
        raise ValueError(f'{path} holds a {type(loaded).__name__}; a dict of weights is required')
    for wrapper in _WRAPPERS:
        if isinstance(loaded.get(wrapper), Mapping):
            ignored += [str(key) for key in loaded if key != wrapper]
            loaded = loaded[wrapper]
            break
    state = {key: value for key, value in loaded.items() if isinstance(value, Tensor)}
    ignored += [str(key) for key in loaded if key not in state]
    if not state:
        raise ValueError(f'{path} holds no weights, only {", ".join(ignored) or "an empty dict"}')
    if all(key.startswith('module.') for key in state):
        state = {key.removeprefix('module.'): value for key, value in state.items()}
    return CheckpointFile(state, ignored)


def write_checkpoint(path: str | Path, state_dict: Mapping[str, Tensor],
                     metadata: Mapping[str, str] | None = None) -> None:
    """Write weights to .safetensors, or to .pth as ``{'state_dict': ..., 'meta': ...}``.

    An interrupted write leaves no half a file behind.

    Raises:
        ValueError: for another ending.
    """
    path = Path(path).expanduser()
    partial = path.with_name(f'{path.name}.partial')
    if path.suffix not in ('.safetensors', '.pth'):
        raise ValueError(f'{path} must end in .safetensors or .pth')
    try:
        if path.suffix == '.safetensors':
            write_safetensors(partial, state_dict, metadata)
        else:
            # Clones: a view would write the whole of what it is a view of.
            weights = {key: value.detach().clone() for key, value in state_dict.items()}
            torch.save(dict(state_dict=weights, meta=dict(metadata or {})), partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
