"""Makes folders that are complete or absent, with a list of what they contain."""
from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

Log = Callable[[str], None]
#: The name of a file in every finished folder, which says how it was made, what it holds, and how
#: large each file is.
MANIFEST = 'prepared.json'


class PrepareError(RuntimeError):
    """A data set can't be prepared; the message says what to do."""


def require_space(folder: Path, num_bytes: int) -> None:
    """Raise PrepareError if the disk of ``folder`` (or of its nearest parent) has less free space
    than this, or if a file is in the way."""
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise PrepareError(f'{folder} is a file; give another folder')
    free = shutil.disk_usage(folder).free
    if free < num_bytes:
        raise PrepareError(f'{folder} has {free / 1e6:.0f} MB free, '
                           f'{num_bytes / 1e6:.0f} MB are needed')


def finished_counts(out: Path, settings: dict[str, object]) -> dict[str, Any] | None:
    """The counts of a folder that :func:`build_folder` finished with these settings, or None.

    Raises:
        PrepareError: If ``out`` holds something that :func:`build_folder` did not write.
    """
    if others := _files_not_in_manifest(out):
        shown = ', '.join([*others[:3], '...'] if len(others) > 3 else others)
        raise PrepareError(f'{out} holds files that were not prepared here, or changed since: '
                           f'{shown}; give another folder, or move them away')
    try:
        manifest = json.loads((out / MANIFEST).read_text())
        if manifest['settings'] == json.loads(json.dumps(settings)) and all(
                (out / name).is_file() for name in manifest['files']):
            return manifest['counts']
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _files_not_in_manifest(folder: Path) -> list[str]:
    """The files in a folder that its manifest does not name, or names with another size."""
    try:
        sizes = dict(json.loads((folder / MANIFEST).read_text())['files'])
        sizes[MANIFEST] = (folder / MANIFEST).lstat().st_size
    except (OSError, ValueError, KeyError, TypeError):
        sizes = {}
    return sorted(str(path.relative_to(folder)) for path in folder.rglob('*')
                  if (path.is_symlink() or not path.is_dir())
                  and sizes.get(str(path.relative_to(folder))) != path.lstat().st_size)


def build_folder(out: Path, settings: dict[str, object], build: Callable[[Path], dict[str, Any]]
                 ) -> dict[str, Any]:
    """Let ``build`` fill an empty folder next to ``out``, then rename it to ``out``.

    Of a folder that was there, only what was prepared there before is deleted.

    Args:
        out: the folder to make.
        settings: what :func:`finished_counts` compares, as JSON can hold it.
        build: writes the files and returns what is counted in them.

    Returns:
        What ``build`` returned.

    Raises:
        PrepareError: If it could not be written, or somebody put files into ``out`` meanwhile.
    """
    out = out.resolve()  # If ``out`` is a link, the folder to which it leads is replaced.
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=f'.{out.name}-', dir=out.parent))
        try:
            new = building / 'new'
            new.mkdir()
            counts = build(new)
            files = {str(path.relative_to(new)): path.stat().st_size
                     for path in sorted(new.rglob('*')) if path.is_file()}
            manifest = {'settings': settings, 'counts': counts, 'files': files}
            (new / MANIFEST).write_text(json.dumps(manifest, indent=1))
            if out.exists():  # Only between these two renames is there no folder.
                finished_counts(out, settings)
                os.rename(out, building / 'old')
            os.rename(new, out)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    except OSError as error:
        raise PrepareError(f'{out} could not be written: {error}') from error
    return counts
