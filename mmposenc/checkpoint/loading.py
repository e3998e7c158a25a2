"""The one place where checkpoint files are read: only whole files, and none that would run code."""
from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file as load_safetensors

from ..terminal.messages import in_a_line
from . import hub
from .contents import Contents, allowing_stand_ins
from .integrity import damage_or_none

if TYPE_CHECKING:
    from torch.serialization import MAP_LOCATION


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
    if reason := damage_or_none(path):
        raise ValueError(f'{path} cannot be read, {reason}')
    kind = 'safetensors file' if path.suffix == '.safetensors' else 'checkpoint'
    try:
        if path.suffix == '.safetensors':
            device = map_location if isinstance(map_location, (str, torch.device)) else 'cpu'
            return load_safetensors(path, device=str(device))
        content = read_pickle(path, map_location, mmap=mmap)
    except pickle.UnpicklingError as error:
        raise ValueError(_refusal_text(path, str(error))) from error
    except Exception as error:  # Damaged bytes end in errors of many kinds.
        raise ValueError(f'{path} cannot be read, it is cut short or no {kind} '
                         f'({in_a_line(error)}): copy or download it again') from error
    if not isinstance(content, Mapping):
        raise ValueError(f'{path} holds a {type(content).__name__}; a dict of weights is required')
    return content


def read_pickle(path: Path, map_location: MAP_LOCATION = 'cpu', *, mmap: bool = False) -> object:
    """What a file of torch.save holds, in plain types; see :mod:`.contents`. Nothing is checked
    before.

    Raises:
        UnpicklingError: it holds code, or a tensor without numbers.
        Exception: of many other kinds, for a damaged file.
    """
    storages: list[Any] = []
    move = torch.serialization._get_restore_location(map_location)

    def place(storage: Any, location: str) -> Any:
        """Move what was read, or what old files will be read into, to its device."""
        storages.append(move(storage, location))
        if hasattr(storage, '_torch_load_uninitialized'):
            storages[-1].fill_(255)  # Not a number: an old file may have no numbers for it.
        return storages[-1]

    with allowing_stand_ins():
        content = torch.load(str(path), map_location=place, weights_only=True,
                             mmap=(mmap and zipfile.is_zipfile(path)) or None)
    return Contents(storages).plain(content)


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
