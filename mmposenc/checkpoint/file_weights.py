"""Reads and writes files of weights, .pth or .safetensors, without running code."""
from __future__ import annotations

import reprlib
from collections import OrderedDict
from collections.abc import Mapping
from importlib.util import find_spec
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file as save_safetensors
from torch import Tensor

from mmposenc.writing import writing_whole_file

from .hub import is_hub_name
from .integrity import NO_CHECKSUM, store_checksum
from .loading import load_checkpoint
from .rules import names_text

#: The key of the averaged weights in files of RT-DETR and DEIM, which their releases evaluate.
AVERAGED = 'ema'
#: The keys under which files store weights; 'teacher' is that of DINO's trainings.
WRAPPERS = ('state_dict', 'model', 'module', 'teacher')


class CheckpointFile(NamedTuple):
    """The weights of a file, names of what else it holds (an optimizer's state, options), and what
    a training of mmengine says about itself."""

    state_dict: dict[str, Tensor]
    ignored: list[str]
    meta: dict[str, Any]


def read_checkpoint(checkpoint: str | Path | Mapping[str, object], name: str | None = None
                    ) -> CheckpointFile:
    """Read the weights of a checkpoint without running any code it may hold.

    Args:
        checkpoint: ``hf://owner/name``, ``timm://model``, .safetensors, or a file of torch.save;
            with mmengine also its addresses, such as https://; or what such a file holds. Weights
            may lie under 'state_dict', 'model', 'module' or 'teacher'; a prefix 'module.' of all
            of them is left out.
        name: name for messages; by default that of the file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: another kind of file, one that is cut short, one that cannot be read without
            running code, or one without weights.
    """
    if isinstance(checkpoint, Mapping):
        return _unwrap(checkpoint, name or 'checkpoint')
    name = name or str(checkpoint)
    if '://' not in str(checkpoint) or is_hub_name(checkpoint):
        return _unwrap(load_checkpoint(checkpoint), name)
    if find_spec('mmengine') is None:
        raise ValueError(f'checkpoint={str(checkpoint)!r}: without mmengine it must be a file, '
                         'hf:// or timm://; download it and give the file')
    from mmengine.runner.checkpoint import CheckpointLoader  # which mmengine_loading changes

    return _unwrap(CheckpointLoader.load_checkpoint(str(checkpoint), map_location='cpu'), name)


def _unwrap(loaded: Mapping, name: str) -> CheckpointFile:
    """Take the weights out of what a file holds, and remove the prefix 'module.'.

    Raises:
        ValueError: it holds none.
    """
    meta = loaded.get('meta')
    ignored: list[str] = []
    for _ in WRAPPERS:
        wrapper = next((key for key in (AVERAGED, *WRAPPERS)
                        if isinstance(loaded.get(key), Mapping)), None)
        if wrapper is not None:
            ignored += [str(key) for key in loaded if key != wrapper]
            loaded = loaded[wrapper]
    state: dict[str, Tensor] = OrderedDict(
        (key, value) for key, value in loaded.items()
        if isinstance(key, str) and isinstance(value, Tensor))
    ignored += [str(key) for key in loaded if key not in state]
    if not state:
        raise ValueError(f'{name} holds no weights, only {names_text(ignored) or "an empty dict"}; '
                         f'required are tensors by name, or {", ".join(map(repr, WRAPPERS))} with '
                         'them')
    if all(key.startswith('module.') for key in state):
        state = OrderedDict((key.removeprefix('module.'), value) for key, value in state.items())
    if hasattr(loaded, '_metadata'):  # torch stores the versions of modules beside weights.
        setattr(state, '_metadata', loaded._metadata)  # noqa: B010  (unknown to mypy)
    return CheckpointFile(state, ignored, meta if isinstance(meta, dict) else {})


def checked_meta(meta: object, name: str) -> dict[str, Any]:
    """What a training of mmengine says of itself in a checkpoint; {} of what is no dict.

    Raises:
        ValueError: counters that are no whole numbers, or classes that are no names.
    """
    meta = meta if isinstance(meta, dict) else {}
    wrong = [(key, meta[key], 'a whole number') for key, bits in (
        ('epoch', 31), ('iter', 31), ('seed', 32)) if key in meta and not (
            isinstance(meta[key], Integral) and 0 <= meta[key] < 1 << bits
            or (key == 'seed' and meta[key] is None))]
    data = meta.get('dataset_meta')
    classes = data.get('classes') if isinstance(data, dict) else data
    if classes is not None and not (isinstance(classes, (list, tuple))
                                    and all(isinstance(each, str) for each in classes)):
        wrong.append(('dataset_meta', data, 'a dict with the names of classes in a list'))
    for key, value, required in wrong:
        raise ValueError(f'{name}: {key} in its meta is {reprlib.repr(value)}; {required} is '
                         'required, as mmengine writes it: take another file, or its weights alone')
    return meta


def write_checkpoint(path: str | Path, state_dict: Mapping[str, Tensor],
                     metadata: Mapping[str, str] | None = None) -> None:
    """Write weights to .safetensors, or to .pth as ``{'state_dict': ..., 'meta': ...}``.

    An interrupted write leaves no half-written file.

    Args:
        path: ends in .safetensors or .pth.
        state_dict: the weights by their names.
        metadata: text by name that is stored with them.

    Raises:
        ValueError: for another ending.
    """
    path = Path(path).expanduser()
    if path.suffix not in ('.safetensors', '.pth'):
        raise ValueError(f'{path} must end in .safetensors or .pth')
    # Copied, because a view would write the whole tensor that it is a part of.
    weights = {key: value.detach().cpu().contiguous().clone()
               for key, value in state_dict.items()}
    with writing_whole_file(path) as partial:
        if path.suffix == '.safetensors':
            save_safetensors(weights, partial,
                             {'format': 'pt', **(metadata or {}), **NO_CHECKSUM})
            store_checksum(partial)
        else:
            torch.save(dict(state_dict=weights, meta=dict(metadata or {})), partial)
