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
#: The name of a file in every finished folder, which says how it was made and what it holds.
MANIFEST = 'prepared.json'


class PrepareError(RuntimeError):
    """A data set can't be prepared; the message says what to do."""


def finished_counts(out: Path, made_from: str) -> dict[str, Any] | None:
    """The counts of a folder that :func:`build_folder` finished, or None if it is empty or absent.

    Raises:
        PrepareError: the folder holds something else, or lacks a file.
    """
    if not out.exists() or out.is_dir() and not any(out.iterdir()):
        return None
    try:
        manifest = json.loads((out / MANIFEST).read_text())
        lacking = [name for name in manifest['files'] if not (out / name).is_file()]
        if manifest['made_from'] == made_from and not lacking:
            counts: dict[str, Any] = manifest['counts']
            return counts
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise PrepareError(f'{out} holds files that were not prepared here, or lacks some that were; '
                       'give another folder, or move it away')


def build_folder(out: Path, made_from: str, build: Callable[[Path], dict[str, Any]]
                 ) -> dict[str, Any]:
    """Let ``build`` fill an empty folder next to ``out``, then rename it to ``out``.

    Args:
        out: the folder to make; it is absent or empty.
        made_from: what :func:`finished_counts` compares.
        build: writes the files and returns what is counted in them.

    Returns:
        What ``build`` returned.

    Raises:
        PrepareError: it could not be written, or somebody put files into ``out`` meanwhile.
    """
    out = out.resolve()  # If ``out`` is a link, the folder to which it leads is filled.
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(prefix=f'.{out.name}-', dir=out.parent))
        try:
            new = building / 'new'
            new.mkdir()
            counts = build(new)
            files = sorted(str(path.relative_to(new)) for path in new.rglob('*') if path.is_file())
            (new / MANIFEST).write_text(json.dumps(
                {'made_from': made_from, 'counts': counts, 'files': files}, indent=1))
            os.rename(new, out)  # This fails if the folder is no longer empty.
        finally:
            shutil.rmtree(building, ignore_errors=True)
    except OSError as error:
        raise PrepareError(f'{out} could not be written: {error}') from error
    return counts
