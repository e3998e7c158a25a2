"""Finds the newest whole checkpoint, and removes old ones only after a new one is whole."""
from __future__ import annotations

import logging
import os
import re
from collections import deque
from pathlib import Path
from typing import Any

from mmengine.dist import is_main_process
from mmengine.hooks import CheckpointHook as _CheckpointHook
from mmengine.logging import print_log
from mmengine.runner import Runner

from mmposenc.checkpoint.integrity import damage_or_none
from mmposenc.checkpoint.loading import read_pickle

#: The checkpoint that is saved at an interrupt. The next regular checkpoint replaces it.
INTERRUPTED = 'interrupted.pth'
_NAMES = re.compile(rf'(?:epoch|iter)_(\d+)\.pth|{re.escape(INTERRUPTED)}')


def latest_checkpoint(work_dir: str | Path) -> str | None:
    """The newest whole checkpoint in a work directory, or None.

    It is the one that got furthest; if the directory has none, the one elsewhere that mmengine's
    ``last_checkpoint`` names. A damaged file is named in the log, and the next one is taken.
    """
    folder = Path(work_dir)
    own = sorted((path for path in folder.glob('*.pth')
                  if _NAMES.fullmatch(path.name) and path.is_file()),
                 key=_iterations_and_number, reverse=True)
    for path in [*map(str, own), *_named_elsewhere(folder)]:
        reason = None if '://' in path else damage_or_none(path)
        if reason is None:
            return path
        print_log(f'the checkpoint {path} is skipped: {reason}', 'current', logging.WARNING)
    return None


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
        content: Any = read_pickle(path, mmap=True)
        iteration = int(content['meta']['iter'])
    except Exception:  # The file is damaged in some way, or of another kind.
        iteration = -1
    return iteration, int(number[0]) if number else 0


class CheckpointHook(_CheckpointHook):
    """mmengine's hook and arguments; under this project's runner every CheckpointHook is this one.

    An old checkpoint goes after the new one is whole and on the disk, so that ``max_keep_ckpts=1``
    never leaves nothing; and so does an old best one, if ``save_best`` names one metric.
    """

    def before_train(self, runner: Runner) -> None:
        if self.filename_tmpl.format(0) == self.filename_tmpl.format(1):
            self.max_keep_ckpts = -1  # All have one name: what is removed would be the newest.
        super().before_train(runner)
        if self.max_keep_ckpts > 0:
            # mmengine's has a largest length, beyond which it would forget names.
            self.keep_ckpt_ids = deque(self.keep_ckpt_ids)
        if is_main_process():
            for path in Path(self.out_dir).glob('*.partial'):
                path.unlink(missing_ok=True)

    def _save_checkpoint_with_step(self, runner: Runner, step: int, meta: dict) -> None:
        marker = Path(runner.work_dir, 'last_checkpoint')
        if is_main_process() and marker.is_symlink():
            # Removed first: if it is a link, mmengine would write into the file to which it points.
            marker.unlink()
        limit = self.max_keep_ckpts
        if limit > 0:
            # mmengine removes the oldest before it writes the new one, so for this moment it may
            # keep one more. A training that is killed now removes it when it is resumed.
            self.max_keep_ckpts = limit + 1
        super()._save_checkpoint_with_step(runner, step, meta)
        self.max_keep_ckpts = limit
        while limit > 0 and len(self.keep_ckpt_ids) > limit:
            self._remove(self.filename_tmpl.format(self.keep_ckpt_ids.popleft()))
        if is_main_process():  # This checkpoint is further on than the interrupted one.
            Path(runner.work_dir, INTERRUPTED).unlink(missing_ok=True)

    def _save_best_checkpoint(self, runner: Runner, metrics: dict) -> None:
        former = getattr(self, 'best_ckpt_path', None)
        if former is None:
            super()._save_best_checkpoint(runner, metrics)
            return
        self.best_ckpt_path = None  # Otherwise mmengine would remove it before it writes.
        super()._save_best_checkpoint(runner, metrics)
        if self.best_ckpt_path is None:
            self.best_ckpt_path = former
        elif (name := os.path.basename(former)) != os.path.basename(self.best_ckpt_path):
            self._remove(name)

    def _remove(self, name: str) -> None:
        path = self.file_backend.join_path(self.out_dir, name)
        if is_main_process() and self.file_backend.isfile(path):
            self.file_backend.remove(path)
