"""One training a work directory."""
from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path
from typing import IO

_NAME = 'train.lock'
#: Locks of this process, to which the system would give the same one twice.
_held: set[Path] = set()


class WorkDirLock:
    """Held by a training as long as it runs; the system lets go of it when the process ends, killed
    or not, and workers that outlive it for a moment do not have it.

    Args:
        work_dir: the directory, which need not be there yet.

    Raises:
        ValueError: another training runs in the directory.
    """

    def __init__(self, work_dir: str | Path) -> None:
        check_unlocked(work_dir)
        Path(work_dir).mkdir(parents=True, exist_ok=True)
        self.path = (Path(work_dir) / _NAME).resolve()
        # Not 'w': the holder's name must stay when it turns out that there is one.
        self.file: IO[str] | None = open(self.path, 'a')
        try:
            fcntl.lockf(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # taken since the check
            self.file.close()
            raise ValueError(_refusal(work_dir, self.path)) from None
        except OSError:  # a file system without locks: go on as if there were none
            return
        self.file.truncate(0)
        self.file.write(f'process {os.getpid()} on {socket.gethostname()}')
        self.file.flush()
        _held.add(self.path)

    def release(self) -> None:
        """Lets go; may be called again."""
        if self.file is not None:
            _held.discard(self.path)
            self.file.close()
            self.file = None


def check_unlocked(work_dir: str | Path) -> None:
    """Raises ValueError if a training runs in the directory. Leaves no trace."""
    path = (Path(work_dir) / _NAME).resolve()
    if path in _held:  # do not touch the file: closing it would let go of the lock
        raise ValueError(_refusal(work_dir, None))
    if not path.is_file():
        return
    with open(path) as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(_refusal(work_dir, path)) from None
        except OSError:
            pass


def _refusal(work_dir: str | Path, path: Path | None) -> str:
    holder = path.read_text(errors='replace').strip() if path else f'process {os.getpid()}'
    return (f'work_dir={str(work_dir)!r}: {holder or "another process"} trains there; two '
            "trainings in one directory would overwrite each other's checkpoints. Give this one "
            'another --work-dir')
