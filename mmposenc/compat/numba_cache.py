"""Gives numba a folder for compiled functions where the user's home cannot be written."""
from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from types import ModuleType


def provide_folder(module: ModuleType) -> None:
    """Let numba store compiled functions in a new temporary folder, which is removed when this
    process ends, if it has no folder that can be written. Otherwise it would refuse to import a
    package that stores such functions, such as the one of mmdet's corruptions.

    Args:
        module: ``numba.core.config``.
    """
    # The folder that numba uses by default.
    usual = Path(os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'), 'numba')
    existing = next(each for each in (usual, *usual.absolute().parents) if each.exists())
    if os.environ.get('NUMBA_CACHE_DIR') or existing.is_dir() and os.access(existing, os.W_OK):
        return
    # A name that nobody can guess, in a folder of this user alone, because numba runs what lies
    # there.
    folder = tempfile.mkdtemp(prefix='mmposenc-numba-')
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ['NUMBA_CACHE_DIR'] = folder
    module.reload_config()
