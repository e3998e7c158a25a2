"""Finds the newest whole checkpoint, and records which one is the newest."""
from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from mmengine.dist import is_main_process
from mmengine.hooks import CheckpointHook as _CheckpointHook
from mmengine.logging import print_log
from torch import Tensor

from mmposenc.checkpoint.integrity import damage_or_none, writing_whole_file
from mmposenc.checkpoint.loading import allowing_safe_types

#: The checkpoint that is saved at an interrupt or an error. The next regular checkpoint replaces
#: it.
INTERRUPTED = 'interrupted.pth'
_NAMES = re.compile(rf'(?:epoch|iter)_(\d+)\.pth|{re.escape(INTERRUPTED)}')


def latest_checkpoint(work_dir: str | Path) -> str | None:
    """The newest whole checkpoint in a work directory, or None.

    The one that ``last_checkpoint`` names, else the one that got furthest. A damaged file is named
    in the log, and the one before it is taken.
    """
    folder = Path(work_dir)
    named = _last_checkpoint_file(folder)
    if named is not None and '://' in named:
        return named
    others = sorted((path for path in folder.glob('*.pth') if _NAMES.fullmatch(path.name)
                     and str(path) != named), key=_iterations_and_number, reverse=True)
    wrong: list[str] = []
    for path in [*([Path(named)] if named else []), *others]:
        reason = damage_or_none(path) if os.path.isfile(path) else 'it is not there'
        if reason is None:
            for line in wrong:
                print_log(f'{line}; {path} is used instead', 'current', logging.WARNING)
            return str(path)
        wrong.append(f'the checkpoint {path} is skipped: {reason}')
    for line in wrong:
        print_log(line, 'current', logging.WARNING)
    return None


def check_no_checkpoints_to_replace(work_dir: str | Path) -> None:
    """Raise ValueError if a training that begins anew would replace the checkpoints of another one.
    """
    checkpoints = sorted(path.name for path in Path(work_dir).glob('*.pth')
                         if _NAMES.fullmatch(path.name) or path.name.startswith('best_'))
    if checkpoints:
        raise ValueError(f'{work_dir} has checkpoints of a training ({checkpoints[-1]}), which '
                         'a new one would replace; --resume continues it, another --work-dir '
                         'keeps it')


def _last_checkpoint_file(folder: Path) -> str | None:
    """The file that ``last_checkpoint`` names. If the folder has a file with that name it is taken,
    because mmengine writes absolute paths and folders are copied."""
    marker = folder / 'last_checkpoint'
    if not marker.is_file():
        return None
    text = marker.read_bytes().decode(errors='replace').strip()
    if not text.endswith('.pth') or not text.isprintable():
        return None  # The file was cut off while it was written.
    if '://' in text:
        return text
    here = folder / Path(text).name
    return str(here if os.path.isabs(text) and os.path.isfile(here) else folder / text)


def _iterations_and_number(path: Path) -> tuple[int, int]:
    """The iterations of a checkpoint, if they can be read, and the number in its name."""
    number = re.search(r'\d+', path.name)
    try:
        with allowing_safe_types():
            iteration = torch.load(str(path), 'cpu', weights_only=True, mmap=True)['meta']['iter']
    except Exception:  # The file is damaged in some way, or of another kind.
        iteration = -1
    return int(iteration), int(number[0]) if number else 0


def write_last_checkpoint(work_dir: str | Path, path: str | Path) -> None:
    """Write the name of the newest checkpoint, relative to the work directory."""
    remote = '://' in str(path)
    text = str(path) if remote else os.path.relpath(path, work_dir)
    with writing_whole_file(Path(work_dir) / 'last_checkpoint') as partial:
        partial.write_text(text)


def first_not_finite(state: Mapping[str, object], parameters: Iterable[str]) -> str | None:
    """The name of the first weight in a state dict that is not finite, or None."""
    parameters = set(parameters)
    for name, value in state.items():
        if isinstance(value, Tensor) and value.is_floating_point():
            bad = ~value.isfinite() if name in parameters else value.isnan()
            if bad.any():
                return name
    return None


class _FileBackendRemovingLater:
    """A file backend that records which files to remove instead of removing them."""

    def __init__(self, backend: Any) -> None:
        self.backend, self.due = backend, list[str]()

    def due_with_outer_saves(self) -> list[str]:
        """The files to remove, including those of a save that is running around this one."""
        return self.due + (self.backend.due_with_outer_saves()
                           if isinstance(self.backend, _FileBackendRemovingLater)
                           else [])

    def remove(self, path: str) -> None:
        self.due.append(path)

    rmtree = remove

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)


class CheckpointHook(_CheckpointHook):
    """mmengine's hook and arguments; under this project's runner every CheckpointHook is this one.

    - An old checkpoint, or an old best one, goes after the new one is whole and on the disk, so
      that ``max_keep_ckpts=1`` and ``save_best`` never leave nothing.
    - ``last_checkpoint`` names the file relative to the work directory, which may be copied.
    - Weights that are not finite are not saved.
    """

    #: Names of files that a training should have removed, but perhaps did not before it was killed.
    _left: tuple[str, ...] = ()

    def before_train(self, runner: Any) -> None:
        super().before_train(runner)
        if is_main_process() and '://' not in str(self.out_dir):
            best = [Path(path).name for path in self._best_checkpoints()]
            left = [Path(self.out_dir, Path(name).name) for name in self._left
                    if name.endswith('.pth') and Path(name).name not in best]
            for path in [*left, *Path(self.out_dir).glob('*.partial')]:
                path.unlink(missing_ok=True)

    def before_save_checkpoint(self, runner: Any, checkpoint: dict) -> None:
        if isinstance(getattr(self, 'file_backend', None), _FileBackendRemovingLater):
            checkpoint['meta']['removing'] = [Path(path).name
                                              for path in self.file_backend.due_with_outer_saves()]

    def after_load_checkpoint(self, runner: Any, checkpoint: dict) -> None:
        if runner._resume:
            self._left = tuple(map(str, checkpoint.get('meta', {}).get('removing', ())))

    def _save_checkpoint_with_step(self, runner: Any, step: int, meta: dict) -> None:
        if not runner.weights_are_finite():
            return
        marker = Path(runner.work_dir, 'last_checkpoint')
        if is_main_process() and marker.is_symlink():
            # Removed first: if it is a link, mmengine would write into the file to which it points.
            marker.unlink()
        with self._removing_later():
            super()._save_checkpoint_with_step(runner, step, meta)
            if is_main_process():
                write_last_checkpoint(runner.work_dir, self.last_ckpt)
        if is_main_process():  # This checkpoint is further on than the interrupted one.
            Path(runner.work_dir, INTERRUPTED).unlink(missing_ok=True)

    def _save_best_checkpoint(self, runner: Any, metrics: dict) -> None:
        if not runner.weights_are_finite():
            return
        with self._removing_later():
            super()._save_best_checkpoint(runner, metrics)

    @contextmanager
    def _removing_later(self) -> Iterator[None]:
        backend = self.file_backend
        self.file_backend = later = _FileBackendRemovingLater(backend)
        try:
            yield
        finally:
            self.file_backend = backend
        for path in later.due:  # Files are removed only after a save that went well.
            if backend.isdir(path):
                backend.rmtree(path)
            elif backend.isfile(path) and path not in (self.last_ckpt, *self._best_checkpoints()):
                backend.remove(path)

    def _best_checkpoints(self) -> list[str]:
        """The paths of the best checkpoints so far. They must not be removed: a better checkpoint
        may get the same name."""
        return [str(getattr(self, 'best_ckpt_path', None)),
                *map(str, getattr(self, 'best_ckpt_path_dict', {}).values())]
