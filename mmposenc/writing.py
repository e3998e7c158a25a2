"""The one door for the files that commands write: all names are known and free before the first,
each file is whole or not there, no link is followed, and nothing is replaced or deleted but what
this project wrote. Only the standard library is imported."""
from __future__ import annotations

import os
import re
import secrets
import shutil
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

#: What a writer that was killed leaves of a file.
_LEFT = re.compile(r'(.+)\.[0-9a-f]{8}\.partial')
#: As many bytes of a name leave room for the digits and the ending behind it.
_LONGEST_NAME = 200


def flush(path: str | Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk and not only in the system's
    memory."""
    folder = os.path.isdir(path)
    try:
        descriptor = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    except PermissionError:
        if not folder:
            raise
        return  # Windows opens no folder, nor does Linux one that may be written but not read.
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def writing_whole_file(path: str | Path, *, durable: bool = True, suffix: str = '.partial'
                       ) -> Iterator[Path]:
    """A context that gives its block an empty file to write to, in a folder that is made. The file
    takes its own name when the block ends well, and is deleted after an error. A link of that name
    is replaced, not followed.

    Args:
        path: the file.
        durable: wait until the disk has it, so that a power cut cannot damage it.
        suffix: how the other name ends, ``<name>.<random digits><suffix>``.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    name = os.fsencode(path.name)[:_LONGEST_NAME].decode(errors='ignore')
    partial = path.with_name(f'{name}.{secrets.token_hex(4)}{suffix}')
    try:
        # Opened with mode 'x', so this process makes the file: nobody can have put a file or a link
        # there.
        open(partial, 'x').close()
    except OSError as error:  # The disk is full, or the folder cannot be written.
        error.filename = str(path)
        raise
    try:
        yield partial
        if durable:
            flush(partial)
        os.replace(partial, path)
        if durable:
            flush(path.absolute().parent)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def writing_picture(path: str | Path) -> Iterator[Path]:
    """As :func:`writing_whole_file`, for a picture. It is signed, so that a later call of the same
    command may replace it."""
    suffix = f'.partial{Path(path).suffix}'
    with writing_whole_file(path, durable=False, suffix=suffix) as partial:
        yield partial
        partial.write_bytes(signed(partial.read_bytes()))


def signed(data: bytes) -> bytes:
    """The content of a file with its hash at the end, which is a comment in Python, and which
    readers of pictures do not look at."""
    return data + b'\n# mmposenc ' + sha256(data).hexdigest().encode() + b'\n'


def is_signed(path: str | Path) -> bool:
    """Whether a file has its hash, and nobody has changed it since."""
    data = Path(path).read_bytes()
    return signed(data[:-len(signed(b''))]) == data


def check_new_files(folder: str | Path, names: Iterable[str], option: str, *,
                    ours: Callable[[Path], bool] = is_signed, inputs: Iterable[str | Path] = (),
                    data: Mapping[str, str] | None = None,
                    remedy: str = 'give another folder, or move it away') -> None:
    """Check that all files of a command may be written, before the first one is.

    Args:
        folder: where they go. It may be a link, and need not be there yet.
        names: the names of all files, with slashes, relative to the folder.
        option: what users call the folder, for messages.
        ours: says of a file that is there whether it may be replaced, as an earlier result may.
        inputs: files that are read, none of which may be replaced.
        data: folders of data by the keys of the config, in which nothing is written.
        remedy: what to do about a file that is in the way.

    Raises:
        ValueError: a file or a link is in the way, two files would have one name, one would lie
            among the data, or the folder cannot be written to.
    """
    _check_writable(folder, option)
    read, known, folders = _identities(inputs), set[str](), {Path(folder)}
    for name in names:
        path = Path(folder, name)
        between = set(path.parents[:len(Path(name).parts) - 1]) - folders
        alike = folded(name)
        reason = 'would be written twice' if alike in known else _reason_or_none(path, ours, read)
        for each in between:
            if each.is_symlink() or each.exists() and not each.is_dir():
                name, reason = os.path.relpath(each, folder), 'is a link or a file'
        if reason is not None:
            raise ValueError(f'{option} {folder}: {name} {reason}; '
                             f'{remedy if reason == "exists" else "give another one"}')
        known.add(alike)
        folders |= between
    for each in folders:
        if key := _data_around(each, data or {}):
            raise ValueError(f'{option} {each}: results would replace files of {key}, or lie among '
                             'them; give another folder')


def folded(name: str) -> str:
    """The same text for names that are one on some file systems: those that do not tell capitals,
    or two ways to write an accent."""
    return unicodedata.normalize('NFC', name).casefold()


def _reason_or_none(path: Path, ours: Callable[[Path], bool], read: set[tuple[int, int]]
                    ) -> str | None:
    """Why a file may not be written, if something is in its place."""
    if path.is_symlink():
        return 'is a link, which is not followed' if path.exists() and ours(path) else 'exists'
    if not path.exists():
        return None
    if path.is_dir():
        return 'is a folder'
    if not path.is_file() or not ours(path):
        return 'exists'
    return 'is read by this command' if _identities([path]) & read else None


def _check_writable(folder: str | Path, option: str) -> None:
    """Check that a folder exists or can be made, and that files can be written into it."""
    path = Path(folder).absolute()
    existing = next(each for each in (path, *path.parents) if os.path.lexists(each))
    if not os.path.isdir(existing):
        raise ValueError(f'{option} {folder}: {existing} is no folder')
    if not os.access(existing, os.W_OK):
        raise ValueError(f'{option} {folder}: {existing} may not be written to')


def _identities(paths: Iterable[str | Path]) -> set[tuple[int, int]]:
    """Device and number of the files that are there, which are the same by every name."""
    found = set()
    for path in paths:
        with suppress(OSError, ValueError):
            status = os.stat(path)
            found.add((status.st_dev, status.st_ino))
    return found


def _data_around(folder: Path, data: Mapping[str, str]) -> str | None:
    """The key of data whose folder is this one or one around it. A folder around the current one
    is not for data alone, so new folders may be made in it."""
    inner = Path(os.path.realpath(folder))
    working = _identities((Path.cwd(), *Path.cwd().parents))
    taken = _identities([inner]) | _identities(inner.parents) - working
    return next((key for key, each in data.items() if _identities([each]) & taken), None)


def remove_leftovers(folder: str | Path, is_ours: Callable[[str], bool]) -> None:
    """Remove what a writer that was killed left in a folder, of the files that have our names."""
    for path in Path(folder).glob('*.partial'):
        match = _LEFT.fullmatch(path.name)
        if match and is_ours(match[1]) and path.is_file() and not path.is_symlink():
            path.unlink(missing_ok=True)


@contextmanager
def building_folder(target: Path) -> Iterator[Path]:
    """A context with an empty folder beside a file or folder, whose own folder is made; from there
    finished files are renamed. It is removed at the end, and if this process is killed, by the next
    one with the same target."""
    from filelock import FileLock, Timeout

    target.parent.mkdir(parents=True, exist_ok=True)
    for path in target.parent.glob('.*'):
        left = re.fullmatch(rf'\.{re.escape(target.name)}-[0-9a-f]{{8}}', path.name)
        if left and not path.is_symlink() and (path / 'lock').is_file():
            with suppress(OSError, Timeout), FileLock(path / 'lock', 0, fallback_to_soft=False):
                shutil.rmtree(path, ignore_errors=True)
    building = target.with_name(f'.{target.name}-{secrets.token_hex(4)}')
    building.mkdir()
    lock = FileLock(building / 'lock', 0, thread_local=False, fallback_to_soft=False)
    try:
        with suppress(OSError):  # Some file systems have no locks.
            lock.acquire()
        (building / 'new').mkdir()
        yield building / 'new'
    finally:
        lock.release()
        shutil.rmtree(building, ignore_errors=True)


def move_files(source: Path, target: Path) -> None:
    """Give all files below a folder their places below another one, each at once."""
    for path in sorted(source.rglob('*')):
        if path.is_file():
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, place)
