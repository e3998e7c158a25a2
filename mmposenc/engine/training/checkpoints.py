"""Finds the newest whole checkpoint, and removes old ones only after a new one is whole."""
from __future__ import annotations

import logging
import os
import re
from pathlib import Path
from typing import Any

import torch
from mmengine.dist import is_main_process
from mmengine.hooks import CheckpointHook as _CheckpointHook
from mmengine.logging import print_log

from mmposenc.checkpoint.integrity import damage_or_none
from mmposenc.checkpoint.loading import allowing_safe_types

#: The checkpoint that is saved at an interrupt or an error. The next regular checkpoint replaces
#: it.
INTERRUPTED = 'interrupted.pth'
_NAMES = re.compile(rf'(?:epoch|iter)_(\d+)\.pth|{re.escape(INTERRUPTED)}')


def latest_checkpoint(work_dir: str | Path) -> str | None:
    """The newest whole checkpoint in a work directory, or None.

    It is the one that got furthest; if the directory has none, the one elsewhere that mmengine's
    ``last_checkpoint`` names. A damaged file is named in the log, and the one before it is taken.
    """
    folder = Path(work_dir)
    own = sorted((path for path in folder.glob('*.pth')
                  if _NAMES.fullmatch(path.name) and path.is_file()),
                 key=_iterations_and_number, reverse=True)
    skipped: list[str] = []
    newest = None
    for path in [*map(str, own), *_named_elsewhere(folder)]:
        reason = None if '://' in path else damage_or_none(path)
        if reason is None:
            newest = path
            break
        skipped.append(f'the checkpoint {path} is skipped: {reason}')
    for line in skipped:
        print_log(f'{line}; {newest} is used instead' if newest else line, 'current',
                  logging.WARNING)
    return newest


def _named_elsewhere(folder: Path) -> list[str]:
    """The file or address that ``last_checkpoint`` names, if it is there."""
    marker = folder / 'last_checkpoint'
    text = marker.read_bytes().decode(errors='replace').strip() if marker.is_file() else ''
    if '://' in text:
        return [text]
    # mmengine writes an ``out_dir`` as the config has it, which may start at the current folder.
    paths = dict.fromkeys((text, os.path.join(folder, text)))
    return [path for path in paths if os.path.isfile(path)]


def check_no_checkpoints_to_replace(work_dir: str | Path) -> None:
    """Raise ValueError if a training that begins anew would replace the checkpoints of another one.
    """
    checkpoints = sorted(path.name for path in Path(work_dir).glob('*.pth')
                         if _NAMES.fullmatch(path.name) or path.name.startswith('best_'))
    if checkpoints:
        raise ValueError(f'{work_dir} has checkpoints of a training ({checkpoints[-1]}), which '
                         'a new one would replace; --resume continues it, another --work-dir '
                         'keeps it')


def _iterations_and_number(path: Path) -> tuple[int, int]:
    """The iterations of a checkpoint, if they can be read, and the number in its name."""
    number = re.search(r'\d+', path.name)
    try:
        with allowing_safe_types():
            iteration = torch.load(str(path), 'cpu', weights_only=True, mmap=True)['meta']['iter']
    except Exception:  # The file is damaged in some way, or of another kind.
        iteration = -1
    return int(iteration), int(number[0]) if number else 0


class _RemovingLater:
    """A file backend that records the names of files to remove instead of removing them.

    Args:
        backend: a backend of mmengine.
        due: the names, without folders.
    """

    def __init__(self, backend: Any, due: list[str]) -> None:
        self.backend, self.due = backend, due

    def remove(self, path: str) -> None:
        self.due.append(os.path.basename(path))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)


class CheckpointHook(_CheckpointHook):
    """mmengine's hook and arguments; under this project's runner every CheckpointHook is this one.

    An old checkpoint, or an old best one, goes after the new one is whole and on the disk, so that
    ``max_keep_ckpts=1`` and ``save_best`` never leave nothing.
    """

    def before_train(self, runner: Any) -> None:
        super().before_train(runner)
        # A training that is killed before it removes a file finds the name in its next checkpoint.
        due = list(runner.message_hub.get_info('checkpoints_to_remove', []))
        runner.message_hub.update_info('checkpoints_to_remove', due)
        self.file_backend = _RemovingLater(self.file_backend, due)
        self._remove_old_files()
        if is_main_process():
            for path in Path(self.out_dir).glob('*.partial'):
                path.unlink(missing_ok=True)

    def _save_checkpoint_with_step(self, runner: Any, step: int, meta: dict) -> None:
        marker = Path(runner.work_dir, 'last_checkpoint')
        if is_main_process() and marker.is_symlink():
            # Removed first: if it is a link, mmengine would write into the file to which it points.
            marker.unlink()
        super()._save_checkpoint_with_step(runner, step, meta)
        self._remove_old_files()
        if is_main_process():  # This checkpoint is further on than the interrupted one.
            Path(runner.work_dir, INTERRUPTED).unlink(missing_ok=True)

    def _save_best_checkpoint(self, runner: Any, metrics: dict) -> None:
        super()._save_best_checkpoint(runner, metrics)
        self._remove_old_files()

    def _remove_old_files(self) -> None:
        """Remove what mmengine wanted to remove, but not a file that got the same name again."""
        backend = self.file_backend.backend
        in_use = [self.last_ckpt, getattr(self, 'best_ckpt_path', None),
                  *getattr(self, 'best_ckpt_path_dict', {}).values()]
        names_in_use = {os.path.basename(path) for path in in_use if path}
        for name in self.file_backend.due:
            path = backend.join_path(self.out_dir, name)
            if is_main_process() and name not in names_in_use and backend.isfile(path):
                backend.remove(path)
        self.file_backend.due.clear()
