"""Runs of a study as json files: a call goes on where the last one was, and several may share a
folder."""
from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[bool]:
    """Whether a run is this call's to make. Its file is there from the beginning, empty, so that
    no other call makes it; it is removed where the run fails."""
    try:
        path.open('x').close()
    except FileExistsError:
        yield False
        return
    try:
        yield True
    except BaseException:
        path.unlink()
        raise


def read_runs(folder: Path) -> list[dict[str, Any]]:
    """The runs of a folder that have ended, by the names of their files."""
    texts = [path.read_text() for path in sorted(folder.glob('*.json'))]
    return [json.loads(text) for text in texts if text]
