"""Makes sure that only one training runs in a work directory."""
from __future__ import annotations

import errno
import os
import socket
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

_NAME = 'train.lock'
#: Error numbers of file systems without locks.
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


class WorkDirLock:
    """A lock that a training holds as long as it runs. The system releases it when the process
    ends, killed or not. Workers that outlive the process for a moment do not hold it. A file system
    without locks notices no second training.

    Args:
        work_dir: the directory, which need not be there yet.

    Raises:
        ValueError: another training runs in the directory.
    """

    def __init__(self, work_dir: str | Path) -> None:
        Path(work_dir).mkdir(parents=True, exist_ok=True)
        # Others check the lock by taking it for a moment, so one attempt would not be enough.
        self._lock = _acquired_lock(work_dir, seconds=1)
        with suppress(PermissionError):  # On Windows nobody can write or read a locked file.
            Path(self._lock.lock_file).write_text(
                f'process {os.getpid()} on {socket.gethostname()}')

    def release(self) -> None:
        """Release the lock; it may be called again."""
        self._lock.release()


def check_unlocked(work_dir: str | Path) -> None:
    """Raise ValueError if a training runs in the directory. Leaves no trace."""
    if (Path(work_dir) / _NAME).is_file():
        _acquired_lock(work_dir, seconds=0.1).release()


def _acquired_lock(work_dir: str | Path, seconds: float) -> FileLock:
    """Take the lock. On a file system without locks it is not held."""
    path = (Path(work_dir) / _NAME).resolve()
    lock = FileLock(path, seconds, thread_local=False, poll_interval=0.005, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        holder = ''
        with suppress(PermissionError):
            holder = path.read_text(errors='replace').strip()
        holder = holder or 'another process'
        raise ValueError(
            f'work_dir={str(work_dir)!r}: {holder} trains there; two trainings in one directory '
            "would overwrite each other's checkpoints. Give this one another --work-dir") from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return lock
