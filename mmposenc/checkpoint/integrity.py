"""Whether the bytes of a file are those that were written: whole at any time, and later."""
from __future__ import annotations

import os
import re
import secrets
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

#: A zip file may end in a comment, which all readers of torch's files ignore. Ours holds the
#: CRC of all bytes before it.
_SEAL = re.compile(rb'mmposenc crc32 ([0-9a-f]{8})')
_SEAL_LENGTH = len(b'mmposenc crc32 01234567')
#: The end of a zip file without a comment: its record of 22 bytes ends in the comment's length.
_END = struct.Struct('<4s16xH')
_CHUNK = 1 << 22


def seal(path: str | Path) -> None:
    """Note the CRC of a file of torch.save in the file itself.

    The zip format has a CRC of each tensor, but none of the table that says which tensor lies
    where; with the seal :func:`damage` finds any changed bit.
    """
    with open(path, 'r+b') as file:
        file.seek(-_END.size, 2)
        signature, comment = _END.unpack(file.read(_END.size))
        if signature != b'PK\5\6' or comment:
            return  # no file that torch.save wrote, or sealed already
        file.seek(-2, 2)
        file.write(struct.pack('<H', _SEAL_LENGTH))
        crc = _crc(file, file.tell())
        file.write(b'mmposenc crc32 %08x' % crc)


def damage(path: str | Path) -> str | None:
    """What is wrong with a checkpoint file of torch.save, or None.

    A file that this project wrote is checked whole, another zip file by the CRCs of its parts.
    Files of torch before 1.6 are no zip files and have nothing to be checked by.
    """
    path = Path(path)
    with open(path, 'rb') as file:
        start = file.read(2)
        if start == b'\x80\x02':
            return None  # a bare pickle, of torch before 1.6
        length = file.seek(0, 2)
        if length == 0:
            return 'it is empty'
        file.seek(max(0, length - _SEAL_LENGTH))
        sealed = _SEAL.fullmatch(file.read())
        if sealed:
            whole = _crc(file, length - _SEAL_LENGTH) == int(sealed[1], 16)
            return None if whole else 'its CRC is not the one it was written with'
    try:
        with zipfile.ZipFile(path) as archive:
            if any('/code/' in name for name in archive.namelist()):
                return "it is a TorchScript program, which is not run: take another file's weights"
            if any(part.compress_type != zipfile.ZIP_STORED for part in archive.infolist()):
                return 'its parts are compressed, which those of torch.save never are'
            broken = archive.testzip()
            comment = archive.comment
    except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError,
            ValueError, struct.error) as error:
        return f'it is cut short or no checkpoint ({error})'
    if broken is not None:
        return f'the CRC of its part {broken} is wrong'
    if comment:  # torch writes none: it is a seal that lost a part
        return 'its own CRC is unreadable'
    return None


def _crc(file: BinaryIO, length: int) -> int:
    """CRC of the first ``length`` bytes; the file is then read up to there."""
    crc = 0
    file.seek(0)
    while length > 0 and (chunk := file.read(min(_CHUNK, length))):
        crc = zlib.crc32(chunk, crc)
        length -= len(chunk)
    return crc


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
