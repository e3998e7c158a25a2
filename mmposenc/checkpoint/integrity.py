"""Checks whether a checkpoint file is whole."""
from __future__ import annotations

import hashlib
import re
import zipfile
from pathlib import Path

#: What to give as metadata of a .safetensors file, to which :func:`store_checksum` adds the digits.
NO_CHECKSUM = {'mmposenc_sha256': '0' * 64}


def damage_or_none(path: str | Path) -> str | None:
    """What is wrong with a checkpoint file, or None.

    torch.load does not compare the CRC that the zip format has of each tensor. Files of torch
    before 1.6 are no zip files and have nothing to be checked by, nor has .safetensors, unless
    :func:`store_checksum` was called for it.
    """
    try:
        if Path(path).suffix == '.safetensors':
            _, stored, actual = _checksum(path)
            return None if stored == actual else (
                'it has changed since it was written, as its SHA-256 is another: copy it again, or '
                'write it without mmposenc_sha256 if another program made it from ours')
        with open(path, 'rb') as file:
            start = file.read(2)
        if start[:1] == b'\x80':
            return None  # The file is a bare pickle, as torch before 1.6 wrote it.
        if not start:
            return 'it is empty'
        with zipfile.ZipFile(path) as archive:
            if any('/code/' in name for name in archive.namelist()):
                return "it is a TorchScript program, which is not run: take another file's weights"
            if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
                return 'its parts are compressed, which those of torch.save never are'
            broken = archive.testzip()
    except PermissionError:
        raise
    except Exception as error:  # Damaged bytes end in errors of many kinds.
        return f'it is cut short or no checkpoint ({error}): copy or download it again'
    return None if broken is None else f'the CRC of its part {broken} is wrong: copy it again'


def store_checksum(path: str | Path) -> None:
    """Put the SHA-256 of a .safetensors file into its metadata, in place of the zeros of
    :data:`NO_CHECKSUM`, as which they count."""
    place, _, actual = _checksum(path)
    with open(path, 'r+b') as file:
        file.seek(place)
        file.write(actual)


def _checksum(path: str | Path) -> tuple[int, bytes, bytes]:
    """Where the checksum stands in a .safetensors file, its digits there, and those that it must
    have; no digits if the file has none."""
    with open(path, 'rb') as file:
        # The metadata is the first entry of the header.
        start = file.read(1 << 16)
        found = re.search(rb'"mmposenc_sha256":"([0-9a-f]{64})"', start)
        if found is None:
            return 0, b'', b''
        digest = hashlib.sha256(start[:found.start(1)] + b'0' * 64 + start[found.end(1):])
        while piece := file.read(1 << 24):
            digest.update(piece)
    return found.start(1), found[1], digest.hexdigest().encode()
