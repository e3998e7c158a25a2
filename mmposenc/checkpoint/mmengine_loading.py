"""mmengine's loading of checkpoints, by this project's safe function.

Importing this module replaces it everywhere in the process: ``load_from``, ``resume``,
``init_cfg=dict(type='Pretrained', ...)`` of any OpenMMLab model, ``load_checkpoint`` of
mmengine.runner. mmengine's own function runs the code of a file that it cannot read otherwise.
After ``import mmposenc`` it is imported right behind mmengine.runner.checkpoint, by
:mod:`mmposenc.compat.patches`.
"""
from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from functools import wraps
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlparse

import torch
from mmengine.logging import HistoryBuffer, MMLogger  # noqa: F401  (files may hold one)
from mmengine.runner import checkpoint as _mmengine
from mmengine.runner.checkpoint import CheckpointLoader
from torch import Tensor, nn

from . import SOURCES, recognise, under_names_of_network
from .file_weights import read_checkpoint
from .loading import load_checkpoint
from .numbers import copying
from .rules import names_text

if TYPE_CHECKING:
    from torch.serialization import MAP_LOCATION


@CheckpointLoader.register_scheme(prefixes=('', 'hf://', 'timm://'), force=True)
def load_from_local(filename: str, map_location: MAP_LOCATION = None) -> Mapping:
    """Replaces mmengine's function of this name: a name without a scheme such as https:// is a
    path, and hf:// and timm:// are names of weights."""
    return load_checkpoint(filename, map_location)


def load_url(url: str, model_dir: str | None = None, map_location: MAP_LOCATION = None,
             progress: bool = True) -> Mapping:
    """Replaces torch.hub.load_state_dict_from_url, which mmengine calls for every URL."""
    folder = Path(model_dir or os.path.join(torch.hub.get_dir(), 'checkpoints'))
    path = folder / os.path.basename(urlparse(url).path)
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        MMLogger.get_current_instance().info(f'downloading {url} to {path}')
        try:
            torch.hub.download_url_to_file(url, str(path), None, progress)
        except (OSError, RuntimeError) as error:
            raise OSError(f'{url} could not be downloaded: {error}. Put the file at {path}, or '
                          'name one of yours in the place of the address') from error
    return load_checkpoint(path, map_location)


def _read(file: str | Path | IO[bytes], map_location: MAP_LOCATION = None,
          weights_only: bool | None = None) -> Mapping:
    """Read a checkpoint from a path, or from bytes that a store such as s3:// returned."""
    if isinstance(file, (str, Path)):
        return load_checkpoint(file, map_location)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'checkpoint.pth'
        path.write_bytes(file.read())
        return load_checkpoint(path, map_location)


_load_state_dict = _mmengine.load_state_dict


@wraps(_load_state_dict)
def load_state_dict(module: nn.Module, state_dict: Mapping[str, Tensor], *args: Any, **kwargs: Any
                    ) -> None:
    """Replaces mmengine's function of this name, which logs errors of copying, and goes on. Files
    of releases get the names of a network of another library."""
    wraps_model = _mmengine.is_model_wrapper(module) or isinstance(module, _mmengine.BaseTTAModel)
    model: Any = module.module if wraps_model else module
    if state_dict and not any(isinstance(value, Tensor) for value in state_dict.values()):
        state_dict = read_checkpoint(state_dict, 'the checkpoint').state_dict
    state_dict, _ = under_names_of_network(state_dict, model.state_dict().keys())
    with copying(model, state_dict, 'the checkpoint'):
        _load_state_dict(module, state_dict, *args, **kwargs)


def load_with_prefix(prefix: str, filename: str, map_location: MAP_LOCATION = None
                     ) -> Mapping[str, Tensor]:
    """Replaces mmengine's function ``_load_checkpoint_with_prefix``; a file of a release needs no
    prefix, because :func:`load_state_dict` knows its names."""
    loaded = CheckpointLoader.load_checkpoint(filename, map_location)
    state, prefix = read_checkpoint(loaded, filename).state_dict, f'{prefix.removesuffix(".")}.'
    behind = {name.removeprefix(prefix): value for name, value in state.items()
              if name.startswith(prefix)}
    if not behind and not ((source := recognise(state)) and SOURCES[source].network):
        raise ValueError(f'{filename} has no weights with {prefix=}, but {names_text(list(state))}')
    return behind or state


_mmengine._load_checkpoint_with_prefix = load_with_prefix
_mmengine.load_state_dict = load_state_dict
_mmengine.load_from_local = load_from_local
_mmengine.load_url = load_url
# mmengine 0.10.7 does not have this function. It calls torch.load, which is safe from torch 2.6 on.
if hasattr(_mmengine, '_safe_torch_load'):
    _mmengine._safe_torch_load = _read
