"""mmengine's CheckpointHook, which deletes an old file only once the new one is on the disk."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mmengine.dist import is_main_process
from mmengine.hooks import CheckpointHook as _CheckpointHook

from .checkpoints import INTERRUPTED, note_checkpoint


class _RemovesLater:
    """A file backend that takes note of what to remove instead of removing it."""

    def __init__(self, backend: Any) -> None:
        self.backend, self.due = backend, list[str]()

    def all_due(self) -> list[str]:
        """With those of a save around this one."""
        return self.due + (self.backend.all_due() if isinstance(self.backend, _RemovesLater)
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

    #: Names of files that the resumed run may not have come to remove.
    _left: tuple[str, ...] = ()

    def before_train(self, runner: Any) -> None:
        super().before_train(runner)
        if is_main_process() and '://' not in str(self.out_dir):
            kept = [Path(path).name for path in self._best()]
            left = [Path(self.out_dir, Path(name).name) for name in self._left
                    if name.endswith('.pth') and Path(name).name not in kept]
            for path in [*left, *Path(self.out_dir).glob('*.partial')]:
                path.unlink(missing_ok=True)

    def before_save_checkpoint(self, runner: Any, checkpoint: dict) -> None:
        if isinstance(getattr(self, 'file_backend', None), _RemovesLater):
            checkpoint['meta']['removing'] = [Path(path).name
                                              for path in self.file_backend.all_due()]

    def after_load_checkpoint(self, runner: Any, checkpoint: dict) -> None:
        if runner._resume:
            self._left = tuple(map(str, checkpoint.get('meta', {}).get('removing', ())))

    def _save_checkpoint_with_step(self, runner: Any, step: int, meta: dict) -> None:
        if not runner.may_save():
            return
        with self._removing_later():
            super()._save_checkpoint_with_step(runner, step, meta)
            if is_main_process():
                note_checkpoint(runner.work_dir, self.last_ckpt)
        if is_main_process():  # this checkpoint is further on
            Path(runner.work_dir, INTERRUPTED).unlink(missing_ok=True)

    def _save_best_checkpoint(self, runner: Any, metrics: dict) -> None:
        if not runner.may_save():
            return
        with self._removing_later():
            super()._save_best_checkpoint(runner, metrics)

    @contextmanager
    def _removing_later(self) -> Iterator[None]:
        backend = self.file_backend
        self.file_backend = later = _RemovesLater(backend)
        try:
            yield
        finally:
            self.file_backend = backend
        for path in later.due:  # only after a save that went well
            if backend.isdir(path):
                backend.rmtree(path)
            elif backend.isfile(path) and path not in (self.last_ckpt, *self._best()):
                backend.remove(path)

    def _best(self) -> list[str]:
        """The best checkpoints of now: a better one may have the old one's name."""
        return [str(getattr(self, 'best_ckpt_path', None)),
                *map(str, getattr(self, 'best_ckpt_path_dict', {}).values())]
