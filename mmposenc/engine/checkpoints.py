"""Which checkpoint to use, and which one is noted as the newest."""
from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from mmengine.logging import print_log
from torch import Tensor

from ..checkpoint.integrity import damage, put_in_place
from ..checkpoint.loading import safe_types

#: Saved at an interrupt or an error; the next checkpoint of the schedule takes its place.
INTERRUPTED = 'interrupted.pth'
_NAMES = re.compile(rf'(?:epoch|iter)_(\d+)\.pth|{re.escape(INTERRUPTED)}')


def latest_checkpoint(work_dir: str | Path) -> str | None:
    """The newest whole checkpoint in a work directory, or None.

    The one that ``last_checkpoint`` names, else the one that got furthest. A damaged file is named
    in the log, and the one before it is taken.
    """
    folder = Path(work_dir)
    noted = _noted(folder)
    if noted is not None and '://' in noted:
        return noted
    others = sorted((path for path in folder.glob('*.pth') if _NAMES.fullmatch(path.name)
                     and str(path) != noted), key=_progress, reverse=True)
    wrong: list[str] = []
    for path in [*([Path(noted)] if noted else []), *others]:
        reason = damage(path) if os.path.isfile(path) else 'it is not there'
        if reason is None:
            for line in wrong:
                print_log(f'{line}; {path} is taken instead', 'current', logging.WARNING)
            return str(path)
        wrong.append(f'the checkpoint {path} is passed over: {reason}')
    for line in wrong:
        print_log(line, 'current', logging.WARNING)
    return None


def _noted(folder: Path) -> str | None:
    """What ``last_checkpoint`` names: a file in the folder wherever it has one of that name, for
    mmengine writes absolute paths, and folders are copied."""
    marker = folder / 'last_checkpoint'
    if not marker.is_file():
        return None
    text = marker.read_bytes().decode(errors='replace').strip()
    if not text.endswith('.pth') or not text.isprintable():
        return None  # cut off while it was written
    if '://' in text:
        return text
    here = folder / Path(text).name
    return str(here if os.path.isabs(text) and os.path.isfile(here) else folder / text)


def _progress(path: Path) -> tuple[int, int]:
    """Iterations of a checkpoint, where they can be read, and the number in its name."""
    number = re.search(r'\d+', path.name)
    try:
        with safe_types():
            iteration = torch.load(path, 'cpu', weights_only=True, mmap=True)['meta']['iter']
    except Exception:  # damaged in any way, or another kind of file
        iteration = -1
    return int(iteration), int(number[0]) if number else 0


def note_checkpoint(work_dir: str | Path, path: str | Path) -> None:
    """Write the name of the newest checkpoint, relative to the work directory."""
    remote = '://' in str(path)
    text = str(path) if remote else os.path.relpath(path, work_dir)
    partial = Path(work_dir) / 'last_checkpoint.partial'
    partial.write_text(text)
    put_in_place(partial, Path(work_dir) / 'last_checkpoint')


def not_finite(state: Mapping[str, Any], parameters: Iterable[str]) -> str | None:
    """The first weight of a state dict that is not finite, or None. Buffers may hold infinity, as
    masks do, but no NaN."""
    parameters = set(parameters)
    for name, value in state.items():
        if isinstance(value, Tensor) and value.is_floating_point():
            bad = ~value.isfinite() if name in parameters else value.isnan()
            if bad.any():
                return name
    return None
