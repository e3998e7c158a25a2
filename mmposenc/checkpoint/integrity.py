"""Whether a checkpoint file is whole, and writing files so that they always are."""
from __future__ import annotations

import os
import secrets
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def damage(path: str | Path) -> str | None:
    """What is wrong with a checkpoint file of torch.save, or None.

    torch.load does not compare the CRC that the zip format has of each tensor. Files of torch
    before 1.6 are no zip files and have nothing to be checked by.
    """
    with open(path, 'rb') as file:
        start = file.read(2)
    if start == b'\x80\x02':
        return None  # a bare pickle, of torch before 1.6
    if not start:
        return 'it is empty'
    try:
        with zipfile.ZipFile(path) as archive:
            if any('/code/' in name for name in archive.namelist()):
                return "it is a TorchScript program, which is not run: take another file's weights"
            if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
                return 'its parts are compressed, which those of torch.save never are'
            broken = archive.testzip()
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError,
            ValueError, struct.error) as error:
        return f'it is cut short or no checkpoint ({error})'
    return None if broken is None else f'the CRC of its part {broken} is wrong'


def put_in_place(partial: Path, path: Path) -> None:
    """Rename a file that is complete, so that a kill or a power cut leaves the old one or the new.
    """
    flush(partial)
    os.replace(partial, path)
    flush(path.absolute().parent)


@contextmanager
def whole_file(path: str | Path, *, durable: bool = True, suffix: str = '.partial'
               ) -> Iterator[Path]:
    """Gives the block an empty file to write to. It takes its own name when the block ends well,
    and is deleted after an error.

    Args:
        path: the file.
        durable: wait until the disk has it, so that a power cut cannot damage it.
        suffix: how the other name ends, ``<name>.<random digits><suffix>``.
    """
    path = Path(path)
    # Nobody can have put a file or a link there: what 'x' opens did not exist before.
    partial = path.with_name(f'{path.name}.{secrets.token_hex(4)}{suffix}')
    try:
        open(partial, 'x').close()
    except OSError as error:  # a full disk, or a folder that cannot be written
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
    """Wait until the disk, and not only the system's memory, has a file or a folder's names."""
    folder = os.path.isdir(path)
    try:
        descriptor = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    except PermissionError:
        if not folder:
            raise
        return  # Windows opens no folders
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
