"""mmengine's training loops, which here can continue exactly where a checkpoint was written, also
within an epoch."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from mmengine.dist import get_rank, get_world_size
from mmengine.hooks import EMAHook
from mmengine.runner import BaseLoop, Runner
from mmengine.runner import EpochBasedTrainLoop as _EpochBasedTrainLoop
from mmengine.runner import IterBasedTrainLoop as _IterBasedTrainLoop
from torch.utils.data import DataLoader

from .interrupt import LOST_BATCH, Interrupted
from .seeding import SeededBatchSampler, seed_all, seed_of_position

_NO_BATCH = ('train_dataloader: its data set gives no batch; at least one is required: lower '
             'batch_size, or set drop_last=False')


class ResumableLoop(BaseLoop):
    """What both loops have in addition: the position in the data, and the validation that a kill
    cut off."""

    #: The number of complete passes over the data, and of the batches used in the next one.
    _pass = 0
    _batch = 0
    #: The iteration after which the last complete validation was.
    _validated_iter = -1

    @property
    def images_per_step(self) -> int:
        """The number of images in a step, of all processes together; 1 if the loader does not say.
        """
        return (getattr(self.dataloader.batch_sampler, 'batch_size', None) or 1) * get_world_size()

    def checkpoint_meta(self, epoch: int, iteration: int) -> dict[str, object]:
        """What a checkpoint of this epoch and iteration must hold. The position in the data counts
        images, so that it means the same if batches have another size after a resume."""
        # At its end an epoch is over although its counter has not moved yet.
        over = isinstance(self, _EpochBasedTrainLoop) and epoch > self._epoch
        images = (self._batch + iteration - self._iter) * self.images_per_step
        return {'data': {'epoch': epoch, 'image': 0} if over
                else {'epoch': self._pass, 'image': images},
                'validated': iteration == self._validated_iter}

    def continue_at(self, meta: Mapping[str, Any]) -> None:
        """Take the position from a checkpoint's meta. One that mmengine wrote has none; then an
        epoch begins anew, and a training by iterations leaves out as many batches as it has done.
        """
        if 'data' in meta:
            self._pass = meta['data']['epoch']
            self._batch = meta['data']['image'] // self.images_per_step
        elif isinstance(self, _EpochBasedTrainLoop):
            self._pass = self._epoch
        else:
            self._batch = self._iter
        if meta.get('validated'):
            self._validated_iter = self._iter

    def mark_validated(self) -> None:
        """Record that there are metrics, before the hooks that act on them run."""
        self._validated_iter = self._iter

    def _start_pass_over_data(self) -> None:
        batches = self.dataloader.batch_sampler
        if isinstance(batches, SeededBatchSampler):
            batches.start(self._pass, self._batch)

    def _batches(self) -> Iterator[object]:
        """Yield the batches of a pass. If a signal ended the workers that load them, save and end
        the training, which is between two iterations here."""
        try:
            yield from self.dataloader
        except LOST_BATCH:
            if self.runner.interrupt.signum:
                self.runner.save_and_end(self.runner.interrupt.signum)
            raise

    def run_iter(self, *args: object) -> None:
        """Iterate one batch. What is drawn, such as dropped paths, depends only on the run's seed,
        the iteration and the process, so a resumed run draws the same."""
        seed_all(seed_of_position(self.runner.seed, self._iter, get_rank()))
        super().run_iter(*args)
        self._batch += 1
        self.runner.stop_if_interrupted()

    def _validate(self, done: int, last: int) -> None:
        """Validate when it is time. After a resume this happens only if that validation was not
        complete."""
        self._decide_current_val_interval()
        if (self.runner.val_loop is None or self._validated_iter == self._iter
                or done < max(self.val_begin, 1)
                or (done % self.val_interval != 0 and done != last)):
            return
        try:
            self.runner.val_loop.run()
        except (Interrupted, *LOST_BATCH):
            signum = self.runner.interrupt.signum
            if not signum or self._validated_iter == self._iter:
                raise
            for hook in self.runner.hooks:  # The model gets the trained weights back.
                if isinstance(hook, EMAHook) and getattr(hook, 'evaluate_on_ema', True):
                    hook._swap_ema_parameters()
            self.runner.save_and_end(signum)


class EpochBasedTrainLoop(ResumableLoop, _EpochBasedTrainLoop):
    """mmengine's loop over epochs with exact resume; see :class:`mmposenc.engine.Runner`."""

    def __init__(self, runner: Runner, dataloader: DataLoader | dict, *args: object,
                 **kwargs: object) -> None:
        super().__init__(runner, dataloader, *args, **kwargs)
        if not len(self.dataloader):
            raise ValueError(_NO_BATCH)

    def run(self) -> torch.nn.Module:
        """Train to the end, and return the model."""
        self.runner.call_hook('before_train')
        if self._batch == 0:
            self._validate(self._epoch, self._max_epochs)
        while self._epoch < self._max_epochs and not self.stop_training:
            self.run_epoch()
            self._validate(self._epoch, self._max_epochs)
        self.runner.call_hook('after_train')
        return self.runner.model

    def run_epoch(self) -> None:
        """Iterate over one epoch, or over the rest of it."""
        self.runner.call_hook('before_train_epoch')
        self.runner.model.train()
        self._start_pass_over_data()
        for idx, data_batch in enumerate(self._batches(), self._batch):
            self.run_iter(idx, data_batch)
        self.runner.call_hook('after_train_epoch')
        self._epoch += 1
        self._pass, self._batch = self._epoch, 0


class IterBasedTrainLoop(ResumableLoop, _IterBasedTrainLoop):
    """mmengine's loop over iterations with exact resume; see :class:`mmposenc.engine.Runner`."""

    def __init__(self, runner: Runner, dataloader: DataLoader | dict, *args: object,
                 **kwargs: object) -> None:
        super().__init__(runner, dataloader, *args, **kwargs)
        self.dataloader_iterator = self._endless_batches()

    def _endless_batches(self) -> Iterator[object]:
        """Yield batches for ever: one pass over the data after the other."""
        while True:
            self._start_pass_over_data()
            first = self._batch
            yield from self._batches()
            if self._batch == first == 0:
                raise ValueError(_NO_BATCH)
            self._pass, self._batch = self._pass + 1, 0

    def run(self) -> torch.nn.Module:
        """Train to the end, and return the model."""
        self.runner.call_hook('before_train')
        # For hooks, the whole training is one epoch.
        self.runner.call_hook('before_train_epoch')
        self._validate(self._iter, self._max_iters)
        while self._iter < self._max_iters and not self.stop_training:
            self.runner.model.train()
            self.run_iter(next(self.dataloader_iterator))
            self._validate(self._iter, self._max_iters)
        self.runner.call_hook('after_train_epoch')
        self.runner.call_hook('after_train')
        return self.runner.model
