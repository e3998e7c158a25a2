"""Finds the newest whole checkpoint, and removes old ones only after a new one is whole."""
from __future__ import annotations

import logging
import os
import re
from collections import deque
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.dist import is_main_process
from mmengine.hooks import CheckpointHook as _CheckpointHook
from mmengine.hooks import LoggerHook
from mmengine.logging import print_log
from mmengine.runner import IterBasedTrainLoop, Runner

from mmposenc.checkpoint.integrity import damage_or_none
from mmposenc.checkpoint.loading import read_pickle
from mmposenc.writing import remove_leftovers

from ..config.nodes import type_without_library

#: The checkpoint that is saved at an interrupt. The next regular checkpoint replaces it.
INTERRUPTED = 'interrupted.pth'
#: The file in which mmengine names the newest checkpoint.
_MARKER = 'last_checkpoint'
#: Where a number stands in a template of names.
_NUMBER = re.compile(r'\{[^{}]*\}')


def folders_and_names(work_dir: str | Path, cfg: Config | None = None
                      ) -> tuple[list[Path], re.Pattern[str]]:
    """The folders of a training's checkpoints, and the pattern of their names, as ``out_dir`` and
    ``filename_tmpl`` of its CheckpointHooks say."""
    options = cfg or {}
    hooks = [(options.get('default_hooks') or {}).get('checkpoint') or {}, *(
        hook for hook in options.get('custom_hooks') or ()
        if isinstance(hook, dict) and type_without_library(hook) == 'CheckpointHook')]
    folders = dict.fromkeys([Path(work_dir), *(
        Path(hook['out_dir'], os.path.basename(os.path.abspath(work_dir)))
        for hook in hooks if hook.get('out_dir'))])
    templates = ['epoch_{}.pth', 'iter_{}.pth', INTERRUPTED,
                 *(hook['filename_tmpl'] for hook in hooks if hook.get('filename_tmpl'))]
    names = [r'\d+'.join(map(re.escape, re.split(_NUMBER, os.path.basename(each))))
             for each in templates]
    # A template may have folders, also with numbers: 'epoch_{}/model.pth'.
    below = [path for folder in folders for each in templates if os.path.dirname(each)
             for path in folder.glob(re.sub(_NUMBER, '*', os.path.dirname(each)))]
    return [*folders, *below], re.compile('|'.join(names))


def latest_checkpoint(work_dir: str | Path, cfg: Config | None = None) -> str | None:
    """The newest whole checkpoint of a training, or None.

    It is the one that got furthest; if there is none, the one elsewhere that mmengine's
    ``last_checkpoint`` names. A damaged file is named in the log, and the next one is taken.

    Args:
        work_dir: the folder of the training.
        cfg: its config, if checkpoints may have other names or folders than mmengine gives them.
    """
    folders, names = folders_and_names(work_dir, cfg)
    own = sorted((path for folder in folders for path in folder.glob('*')
                  if names.fullmatch(path.name) and path.is_file()),
                 key=_iterations_and_number, reverse=True)
    for path in [*map(str, own), *_named_elsewhere(Path(work_dir))]:
        reason = None if '://' in path else damage_or_none(path)
        if reason is None:
            return path
        print_log(f'the checkpoint {path} is skipped: {reason}', 'current', logging.WARNING)
    return None


def _named_elsewhere(folder: Path) -> list[str]:
    """The file or address that ``last_checkpoint`` names, if it is there."""
    marker = folder / _MARKER
    text = marker.read_bytes().decode(errors='replace').strip() if marker.is_file() else ''
    if '://' in text:
        return [text]
    # mmengine writes an ``out_dir`` as the config has it, which may start at the current folder.
    paths = dict.fromkeys((text, os.path.join(folder, text)))
    return [path for path in paths if os.path.isfile(path)]


def check_replaces_no_files(cfg: Config, *, anew: bool) -> None:
    """Check what a training would replace.

    Args:
        cfg: the config of the training, with its work_dir.
        anew: it does not continue the one whose checkpoints are there.

    Raises:
        ValueError: the checkpoints of another training, or a file of the user's.
    """
    folders, names = folders_and_names(cfg.work_dir, cfg)
    marker = folders[0] / _MARKER
    text = marker.read_text(errors='replace').strip() if marker.is_file() else ''
    last = os.path.basename(text)
    if text and ('\n' in text or not (names.fullmatch(last) or last.endswith('.pth'))):
        raise ValueError(f'{marker} is no note of a training, which would replace it; move it '
                         'away, or give another --work-dir')
    for folder in folders if anew else ():
        checkpoints = sorted(path.name for path in folder.glob('*')
                             if _is_checkpoint(path.name, names))
        if checkpoints:
            raise ValueError(f'{folder} has checkpoints of a training ({checkpoints[-1]}), which '
                             'a new one would replace; --resume continues it, another --work-dir '
                             'keeps it')


def _is_checkpoint(name: str, names: re.Pattern[str]) -> bool:
    """Whether a name is that of a checkpoint, or of a best one."""
    return bool(re.fullmatch(rf'{names.pattern}|best_(.*\.pth|.*_({names.pattern}))', name))


def _iterations_and_number(path: Path) -> tuple[int, int]:
    """The iterations of a checkpoint, if they can be read, and the number in its name."""
    numbers = re.findall(r'\d+', path.name)
    try:
        content: Any = read_pickle(path, mmap=True)
        iteration = int(content['meta']['iter'])
    except Exception:  # The file is damaged in some way, or of another kind.
        iteration = -1
    return iteration, int(numbers[-1]) if numbers else 0


class CheckpointHook(_CheckpointHook):
    """mmengine's hook and arguments; under this project's runner every CheckpointHook is this one.

    An old checkpoint goes after the new one is whole and on the disk, so that ``max_keep_ckpts=1``
    never leaves nothing; and so does an old best one, if ``save_best`` names one metric.
    """

    def before_train(self, runner: Runner) -> None:
        self._check_interval(runner)
        if self.filename_tmpl.format(0) == self.filename_tmpl.format(1):
            self.max_keep_ckpts = -1  # All have one name: what is removed would be the newest.
        super().before_train(runner)
        if self.max_keep_ckpts > 0:
            # mmengine's has a largest length, beyond which it would forget names.
            self.keep_ckpt_ids = deque(self.keep_ckpt_ids)
        if is_main_process():
            folders, names = folders_and_names(runner.work_dir, runner.cfg)
            config = f'{Path(runner.cfg.filename or "").stem}.py'
            for folder in {Path(self.out_dir), *folders}:
                remove_leftovers(
                    folder, lambda name: name == config or _is_checkpoint(name, names))

    def _check_interval(self, runner: Runner) -> None:
        """Raise ValueError if a loop of iterations gets no checkpoint before its end. For a loop of
        epochs, or a trial shorter than an interval of the log, this is a warning."""
        in_steps = isinstance(runner.train_loop, IterBasedTrainLoop)
        epochs = self.by_epoch and in_steps  # The whole training is one.
        length = runner.max_epochs if self.by_epoch else runner.max_iters
        if self.interval < 1 or not epochs and (self.save_begin or self.interval) <= length:
            return
        message = (f'default_hooks.checkpoint (by_epoch={self.by_epoch}, interval={self.interval}, '
                   f'save_begin={self.save_begin}): no checkpoint before the end of the training '
                   f'of {runner.max_iters} steps; write '
                   f'{"by_epoch=False and an interval in steps" if epochs else "smaller numbers"}')
        if in_steps and all(runner.max_iters >= hook.interval for hook in runner.hooks
                            if isinstance(hook, LoggerHook)):
            raise ValueError(message)
        runner.logger.warning(message)

    def _save_checkpoint_with_step(self, runner: Runner, step: int, meta: dict) -> None:
        marker = Path(runner.work_dir, _MARKER)
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
        metrics = self._without_undefined(runner, metrics)
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

    def _without_undefined(self, runner: Runner, metrics: dict) -> dict:
        """Replace results that are no numbers, or -1 as COCO's AP of nothing, by the worst number,
        which is never the best; a warning names them."""
        if not self.save_best:
            return metrics
        if 'auto' in self.key_indicators:  # As mmengine takes it.
            self._init_rule(self.rules, [next(iter(metrics))])
        for name, rule in zip(self.key_indicators, self.rules, strict=True):
            value = metrics.get(name)
            if value is None or value != value or value == -1:
                runner.logger.warning(
                    f'no best checkpoint by save_best={name!r}: the validation gave '
                    + (f'{value}, as where its data has nothing to find' if name in metrics
                       else f'only {", ".join(metrics)}'))
                metrics = {**metrics, name: self.init_value_map[rule]}
        return metrics

    def _remove(self, name: str) -> None:
        path = self.file_backend.join_path(self.out_dir, name)
        if is_main_process() and self.file_backend.isfile(path):
            self.file_backend.remove(path)
