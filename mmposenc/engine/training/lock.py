"""Makes sure that only one training runs in a work directory."""
from __future__ import annotations

import errno
import os
import re
import socket
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

_NAME = 'train.lock'
_CONTENT = re.compile(r'(process \d+ on .*)?')
#: Error numbers of file systems without locks.
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


class WorkDirLock:
    """A lock that a training holds as long as it runs. The system releases it when the process
    ends, killed or not. Workers that outlive the process for a moment do not hold it. A file system
    without locks notices no second training.

    Args:
        work_dir: the directory, which need not be there yet.
        seconds: how long to wait for it. Others check the lock by taking it for a moment, so one
            attempt would not be enough. Below 0: for ever.

    Raises:
        ValueError: another training runs in the directory.
        FileExistsError: a file of the user's, or a link, has the name of the lock.
    """

    def __init__(self, work_dir: str | Path, seconds: float = 1) -> None:
        Path(work_dir).mkdir(parents=True, exist_ok=True)
        self._lock = _acquired_lock(work_dir, seconds)
        with suppress(PermissionError):  # On Windows nobody can write or read a locked file.
            Path(self._lock.lock_file).write_text(
                f'process {os.getpid()} on {socket.gethostname()}')

    def release(self) -> None:
        """Release the lock; it may be called again."""
        self._lock.release()


def check_unlocked(work_dir: str | Path) -> None:
    """Raise ValueError if a training runs in the directory. Leaves no trace."""
    if os.path.lexists(Path(work_dir) / _NAME):
        _acquired_lock(work_dir, seconds=0.1).release()


def _holder(path: Path) -> str:
    """What a lock says of who holds it, as far as it can be read."""
    with suppress(PermissionError):
        return path.read_text(errors='replace').strip()
    return ''


def _acquired_lock(work_dir: str | Path, seconds: float) -> FileLock:
    """Take the lock. On a file system without locks it is not held."""
    path = Path(work_dir).resolve() / _NAME
    if os.path.lexists(path) and (path.is_symlink() or not path.is_file()
                                  or not _CONTENT.fullmatch(_holder(path))):
        raise FileExistsError(f'work_dir={str(work_dir)!r}: {_NAME} there is no lock of a '
                              'training, which would write to it; move it away, or give another '
                              '--work-dir')
    lock = FileLock(path, seconds, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise ValueError(
            f'work_dir={str(work_dir)!r}: {_holder(path) or "another process"} trains there; two '
            "trainings in one directory would overwrite each other's checkpoints. Give this one "
            'another --work-dir') from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return lock
