"""One training a work directory."""
from __future__ import annotations

import errno
import logging
import os
import socket
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout
from mmengine.logging import print_log

_NAME = 'train.lock'
#: Errors of file systems without locks.
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


class WorkDirLock:
    """Held by a training as long as it runs; the system lets go of it when the process ends, killed
    or not, and workers that outlive it for a moment do not have it.

    Args:
        work_dir: the directory, which need not be there yet.

    Raises:
        ValueError: another training runs in the directory.
    """

    def __init__(self, work_dir: str | Path) -> None:
        Path(work_dir).mkdir(parents=True, exist_ok=True)
        # Others look by taking it for a moment, so one attempt would not do.
        self._lock = _acquire(work_dir, seconds=1)
        if self._lock.is_locked:
            holder = f'process {os.getpid()} on {socket.gethostname()}'
            with suppress(PermissionError):  # Windows lets nobody write or read a locked file
                Path(self._lock.lock_file).write_text(holder)
        else:
            print_log(f'{work_dir}: its file system has no locks, so that a second training in '
                      'this directory would not be noticed', 'current', logging.WARNING)

    def release(self) -> None:
        """Releases the lock; may be called again."""
        self._lock.release()


def check_unlocked(work_dir: str | Path) -> None:
    """Raises ValueError if a training runs in the directory. Leaves no trace."""
    if (Path(work_dir) / _NAME).is_file():
        _acquire(work_dir, seconds=0.1).release()


def _acquire(work_dir: str | Path, seconds: float) -> FileLock:
    """The lock; not held where the file system has none."""
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
