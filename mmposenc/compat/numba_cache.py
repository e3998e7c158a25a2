"""A folder for numba's compiled functions where the home of the user cannot be written."""
from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from types import ModuleType


def provide_folder(module: ModuleType) -> None:
    """Let numba cache in a new temporary folder, which goes when this process ends, if it has no
    folder of its own that can be written: it would refuse to import a package that caches, such as
    the one of mmdet's corruptions.

    Args:
        module: ``numba.core.config``.
    """
    # Where numba caches if nobody says where.
    usual = Path(os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'), 'numba')
    existing = next(each for each in (usual, *usual.absolute().parents) if each.exists())
    if os.environ.get('NUMBA_CACHE_DIR') or existing.is_dir() and os.access(existing, os.W_OK):
        return
    # A name that nobody can guess, and of this user alone: numba runs what lies there.
    folder = tempfile.mkdtemp(prefix='mmposenc-numba-')
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ['NUMBA_CACHE_DIR'] = folder
    module.reload_config()
