"""A bounded folder of features, each in a file that proves what it is."""
from __future__ import annotations

import hashlib
import logging
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from mmengine.logging import print_log
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

#: How many writes may pass before the folder is measured again: other processes write to it too.
_MEASURED_EVERY = 64


class FeatureStore:
    """Features in bfloat16, by two hashes: of the weights that made them and of the image.

    A file is read only if it says both hashes and its checksum is that of these and its tensors;
    any other (damaged, cut short, renamed, of other weights) is as good as none and is written
    anew. What can't be written (a full disk, a folder in the place of a file) is left out, and a
    warning tells the first reason. Nothing that is read can run code (safetensors).

    Args:
        folder: made when it is not there.
        max_bytes: files are written while all of the folder stays below it (several processes
            may pass it by a few files). Nothing is deleted to make room.

    Raises:
        ValueError: for a limit that is not positive, or a folder that is a file.
    """

    def __init__(self, folder: str | Path, max_bytes: int) -> None:
        self.folder = Path(folder).expanduser()
        if max_bytes <= 0:
            raise ValueError(f'max_bytes={max_bytes} must be positive')
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:  # a file, or a link that leads nowhere
            raise ValueError(f'folder={str(folder)!r} must be a folder, or a name for one: '
                             f'{error.strerror}') from error
        self.max_bytes = max_bytes
        self.used_bytes = self._measured()
        #: What became of the features that were asked for.
        self.counts = dict.fromkeys(('read', 'damaged', 'written', 'no room', 'not kept'),
                                    0)

    def path(self, weights: str, image: str) -> Path:
        """Where features lie."""
        return self.folder / weights[:16] / image[:2] / f'{image[:32]}.safetensors'

    def read(self, weights: str, image: str) -> list[Tensor] | None:
        """The features that ``weights`` made of ``image``, or None."""
        path = self.path(weights, image)
        if not os.path.isfile(path):
            return None
        try:
            with safe_open(path, framework='pt') as file:
                about = file.metadata() or {}
                tensors = [file.get_tensor(name) for name in sorted(file.keys())]
        except (SafetensorError, OSError, ValueError):
            about, tensors = {}, []
        if about == _about(weights, image, tensors):
            self.counts['read'] += 1
            return tensors
        self.counts['damaged'] += 1
        return None

    def write(self, weights: str, image: str, tensors: Sequence[Tensor]) -> None:
        """Keep features, unless the folder is full.

        Args:
            weights, image: hexadecimal hashes.
            tensors: at most 100, of any shapes; kept in bfloat16.
        """
        kept = [tensor.detach().to('cpu', torch.bfloat16).contiguous() for tensor in tensors]
        path = self.path(weights, image)
        old = _size(path)
        new = sum(tensor.nbytes for tensor in kept) + 1024 + 128 * len(kept)  # and the header
        if sum(self.counts.values()) % _MEASURED_EVERY == 0:
            self.used_bytes = self._measured()
        if self.used_bytes - old + new > self.max_bytes:
            self.counts['no room'] += 1
            return
        partial = path.with_name(f'{path.name}.{os.getpid()}.partial')
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            save_file({f'{i:02d}': tensor for i, tensor in enumerate(kept)}, partial,
                      _about(weights, image, kept))
            # No flush to the disk: what a power cut damages is computed again.
            os.replace(partial, path)
        except (SafetensorError, OSError) as error:
            if not self.counts['not kept']:
                print_log(f'{path}: {error}; training goes on, and computes features that can not '
                          'be kept each time', 'current', logging.WARNING)
            self.counts['not kept'] += 1
            with suppress(OSError):
                partial.unlink(missing_ok=True)
            return
        self.used_bytes += _size(path) - old
        self.counts['written'] += 1

    def _measured(self) -> int:
        """Of all files, also those that a killed process left half written."""
        return sum(_size(Path(folder, name)) for folder, _, names in os.walk(self.folder)
                   for name in names)


def _size(path: Path) -> int:
    """Of a file or a link itself; 0 where there is none, or somebody just took it away."""
    try:
        about = path.lstat()
    except OSError:
        return 0
    return 0 if stat.S_ISDIR(about.st_mode) else about.st_size


def hash_tensors(tensors: Iterable[Tensor], *more: str) -> str:
    """SHA-256 of tensors' types, shapes and values, in hexadecimal.

    Args:
        tensors: on any device.
        more: further words that count.
    """
    digest = hashlib.sha256(repr(more).encode())
    for tensor in tensors:
        plain = tensor.detach().cpu().contiguous()
        digest.update(f'{plain.dtype} {tuple(plain.shape)}'.encode())
        if plain.numel():
            digest.update(memoryview(plain.reshape(-1).view(torch.uint8).numpy()))
    return digest.hexdigest()


def hash_weights(state_dict: Mapping[str, Tensor], *more: str) -> str:
    """SHA-256 of a state dict, names included; ``more`` as in :func:`hash_tensors`."""
    names = sorted(state_dict)
    return hash_tensors((state_dict[name] for name in names), *names, *more)


def _about(weights: str, image: str, tensors: Sequence[Tensor]) -> dict[str, str]:
    """What a file says of itself."""
    return {'weights': weights, 'image': image,
            'checksum': hash_tensors(tensors, weights, image)}
