"""Makes folders that are complete or absent, and says what they contain."""
from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mmposenc.terminal.messages import printable
from mmposenc.writing import building_folder

Log = Callable[[str], None]
#: For each part of a data set, such as 'train', the numbers of what it contains.
Counts = dict[str, dict[str, int]]
#: The name of a file in every finished folder, which says what it was made from.
MANIFEST = 'prepared.json'


class PrepareError(RuntimeError):
    """A data set can't be prepared; the message says what to do."""


def is_finished(out: Path, made_from: str) -> bool:
    """Whether :func:`build_folder` made a folder, which is empty or absent else.

    Raises:
        PrepareError: the folder holds something else.
    """
    if not out.exists() or out.is_dir() and not any(out.iterdir()):
        return False
    with suppress(OSError, ValueError, KeyError, TypeError):
        if json.loads((out / MANIFEST).read_text())['made_from'] == made_from:
            return True
    raise PrepareError(f'{out} holds files that were not prepared here; give another folder, or '
                       'move it away')


def build_folder(out: Path, made_from: str, build: Callable[[Path], Counts], log: Log) -> Counts:
    """Let ``build`` fill an empty folder next to ``out``, then rename it to ``out``.

    Args:
        out: the folder to make; it is absent or empty.
        made_from: what :func:`is_finished` compares.
        build: writes the files and returns what is counted in them.
        log: called with the counts of each part.

    Returns:
        What ``build`` returned.

    Raises:
        PrepareError: it could not be written, or somebody put files into ``out`` meanwhile.
    """
    out = out.resolve()  # If ``out`` is a link, the folder to which it leads is filled.
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with building_folder(out) as new:
            counts = build(new)
            (new / MANIFEST).write_text(json.dumps({'made_from': made_from}))
            os.rename(new, out)  # This fails if the folder is no longer empty.
    except OSError as error:
        raise PrepareError(f'{out} could not be written: {error}') from error
    for part, numbers in counts.items():
        amounts = ', '.join(f'{number:,} {what}' for what, number in numbers.items())
        log(printable(f'{part}: {amounts}'))
    return counts
