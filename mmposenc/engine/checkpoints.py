"""Which checkpoint to use, which one is noted as the newest, and whether it fits the model."""
from __future__ import annotations

import logging
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from mmengine.logging import print_log
from torch import Tensor

from ..checkpoint.integrity import damage, put_in_place
from ..checkpoint.loading import safe_types
from ..checkpoint.recognition import recognise

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


def mismatch(model: Mapping[str, Tensor], checkpoint: Mapping[str, Any]) -> str:
    """Says what of a checkpoint does not fit a model; an empty string when all of it does.

    A release's own file, of which nothing fits, is called that, with what to do about it.

    Args:
        model: the state dict that the model has.
        checkpoint: the state dict to be loaded, or what a release holds it in.

    Returns:
        Missing, unexpected and differently shaped names, those of one module on one line.
    """
    model = {name: value for name, value in model.items() if 'num_batches_tracked' not in name}
    missing = [name for name in model if name not in checkpoint]
    unexpected = [name for name in checkpoint
                  if name not in model and 'num_batches_tracked' not in name]
    reshaped = [f'{name}: {tuple(checkpoint[name].shape)} in the checkpoint, '
                f'{tuple(value.shape)} in the model' for name, value in model.items()
                if name in checkpoint and checkpoint[name].shape != value.shape]
    parts = [_section('in the model but not in the checkpoint', _grouped(missing), len(missing)),
             _section('in the checkpoint but not in the model', _grouped(unexpected),
                      len(unexpected)),
             _section('of another shape', reshaped, len(reshaped))]
    origin = '' if set(model) & set(checkpoint) else _origin(checkpoint)
    return '\n'.join(part for part in (origin, *parts) if part)


def _origin(checkpoint: Mapping[str, Any]) -> str:
    """Whose file it is, where its names tell."""
    inner = checkpoint.get('model')
    try:
        source = recognise(inner if isinstance(inner, Mapping) else checkpoint)
    except ValueError as error:
        return str(error)
    return '' if source is None else (
        f'its names are those of source {source!r}: convert it with '
        f'`mmposenc convert {source} FILE OUT.pth`')


def _section(title: str, lines: list[str], count: int, most: int = 20) -> str:
    if not lines:
        return ''
    shown = lines[:most] + [f'... and {len(lines) - most} more lines'] * (len(lines) > most)
    return '\n'.join([f'{count} {title}:', *(f'  {line}' for line in shown)])


def _grouped(names: Iterable[str], depth: int = 3) -> list[str]:
    """'backbone.layers.0.{norm1.weight, norm1.bias}', by the first parts of the name."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name in names:
        parts = name.split('.')
        cut = min(depth, len(parts) - 1)
        groups['.'.join(parts[:cut])].append('.'.join(parts[cut:]))
    return [f'{prefix}.{leaves[0]}' if len(leaves) == 1
            else f'{prefix}.{{{", ".join(leaves[:4])}{", ..." if len(leaves) > 4 else ""}}} '
                 f'({len(leaves)})' for prefix, leaves in groups.items()]
