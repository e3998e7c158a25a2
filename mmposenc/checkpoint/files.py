"""Checkpoint files: safe to read, .pth or .safetensors."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import save_file as save_safetensors
from torch import Tensor

from .hub import is_name
from .integrity import whole_file
from .loading import load_checkpoint
from .rules import shown

_PICKLES = ('.pth', '.pt', '.bin', '.tar')
#: Where weights lie in a file; those of DINO's trainings under 'teacher'.
WRAPPERS = ('state_dict', 'model', 'module', 'teacher')


class CheckpointFile(NamedTuple):
    """The weights of a file, and names of what else it holds (an optimizer's state, options)."""

    state_dict: dict[str, Tensor]
    ignored: list[str]


def read_checkpoint(path: str | Path) -> CheckpointFile:
    """Read the weights of a checkpoint without running any code it may hold.

    Args:
        path: ``hf://owner/name``, ``timm://model``, .safetensors, or .pth, .pt, .bin, .tar of
            torch.save. Weights may lie under 'state_dict', 'model', 'module' or 'teacher'; a prefix
            'module.' of all of them is left out.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: for another kind of file, one that is cut short, one that cannot be read
            without running code, or one without weights.
    """
    if is_name(path):
        return unwrap(load_checkpoint(path), path)
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f'{path} is no file')
    if path.suffix not in ('.safetensors', *_PICKLES):
        raise ValueError(f'{path} must end in .safetensors, {", ".join(_PICKLES)}')
    return unwrap(load_checkpoint(path), path)


def unwrap(loaded: Mapping, path: str | Path) -> CheckpointFile:
    """The weights of what a file holds, without the wrappers around them and a prefix 'module.'.

    Raises:
        ValueError: it holds none.
    """
    ignored: list[str] = []
    for _ in WRAPPERS:
        wrapper = next((key for key in WRAPPERS if isinstance(loaded.get(key), Mapping)), None)
        if wrapper is not None:
            ignored += [str(key) for key in loaded if key != wrapper]
            loaded = loaded[wrapper]
    state = {key: value for key, value in loaded.items()
             if isinstance(key, str) and isinstance(value, Tensor)}
    ignored += [str(key) for key in loaded if key not in state]
    if not state:
        raise ValueError(f'{path} holds no weights, only {shown(ignored) or "an empty dict"}; '
                         f'required are tensors by name, or {", ".join(map(repr, WRAPPERS))} with '
                         'them')
    if all(key.startswith('module.') for key in state):
        state = {key.removeprefix('module.'): value for key, value in state.items()}
    return CheckpointFile(state, ignored)


def write_checkpoint(path: str | Path, state_dict: Mapping[str, Tensor],
                     metadata: Mapping[str, str] | None = None) -> None:
    """Write weights to .safetensors, or to .pth as ``{'state_dict': ..., 'meta': ...}``.

    An interrupted write leaves no half-written file.

    Raises:
        ValueError: for another ending.
    """
    path = Path(path).expanduser()
    if path.suffix not in ('.safetensors', '.pth'):
        raise ValueError(f'{path} must end in .safetensors or .pth')
    # Clones: a view would write the whole of what it is a view of.
    weights = {key: value.detach().cpu().contiguous().clone()
               for key, value in state_dict.items()}
    with whole_file(path) as partial:
        if path.suffix == '.safetensors':
            save_safetensors(weights, partial, {'format': 'pt', **(metadata or {})})
        else:
            torch.save(dict(state_dict=weights, meta=dict(metadata or {})), partial)
