"""Checks whether a checkpoint file is whole, and writes files so that they are always whole."""
from __future__ import annotations

import hashlib
import os
import re
import secrets
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
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
                'it has changed since it was written, as its SHA-256 is another: copy it again')
        with open(path, 'rb') as file:
            start = file.read(2)
        if start == b'\x80\x02':
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


def put_in_place(partial: Path, path: Path) -> None:
    """Rename a complete file to its final name, so that after a kill or a power cut there is either
    the old file or the new one."""
    flush(partial)
    os.replace(partial, path)
    flush(path.absolute().parent)


@contextmanager
def writing_whole_file(path: str | Path, *, durable: bool = True, suffix: str = '.partial'
                       ) -> Iterator[Path]:
    """A context that gives its block an empty file to write to. The file takes its own name when
    the block ends well, and is deleted after an error.

    Args:
        path: the file.
        durable: wait until the disk has it, so that a power cut cannot damage it.
        suffix: how the other name ends, ``<name>.<random digits><suffix>``.
    """
    path = Path(path)
    # Opened with mode 'x', so this process makes the file: nobody can have put a file or a link
    # there.
    partial = path.with_name(f'{path.name}.{secrets.token_hex(4)}{suffix}')
    try:
        open(partial, 'x').close()
    except OSError as error:  # The disk is full, or the folder cannot be written.
        error.filename = str(path)
        raise
    try:
        yield partial
        if durable:
            put_in_place(partial, path)
        else:
            os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def flush(path: str | Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk and not only in the system's
    memory."""
    folder = os.path.isdir(path)
    try:
        descriptor = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    except PermissionError:
        if not folder:
            raise
        return  # Windows cannot open a folder.
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
