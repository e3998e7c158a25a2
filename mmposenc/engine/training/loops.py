"""mmengine's training loops, which here can continue exactly where a checkpoint was written, also
within an epoch."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from mmengine.dist import get_rank, get_world_size
from mmengine.runner import BaseLoop, Runner
from mmengine.runner import EpochBasedTrainLoop as _EpochBasedTrainLoop
from mmengine.runner import IterBasedTrainLoop as _IterBasedTrainLoop
from torch.utils.data import DataLoader

from .seeding import SeededBatchSampler, why_resume_is_inexact, with_seeded_batches


class ResumableLoop(BaseLoop):
    """What both loops have in addition: the position in the data, and the validation that a kill
    cut off."""

    #: The number of complete passes over the data, and of the batches used in the next one.
    _pass = 0
    _batch = 0
    #: Whether hooks at the end of an epoch or a validation are running, so that some of them may
    #: have run already.
    closing = False
    _validation_is_due = False

    @staticmethod
    def seeded_train_loader(runner: Runner, dataloader: DataLoader | dict) -> DataLoader:
        """Build the loader of a training, in which each sample has a seed of its own."""
        if isinstance(dataloader, dict):
            different = runner._randomness_cfg.get('diff_rank_seed', False)
            dataloader = runner.build_dataloader(dataloader, seed=runner.seed,
                                                 diff_rank_seed=different)
        return with_seeded_batches(dataloader, runner.seed, get_rank(), get_world_size())

    def data_position(self, epoch: int, iteration: int) -> dict[str, int]:
        """The position in the data that a checkpoint of this epoch and iteration must hold."""
        if isinstance(self, _EpochBasedTrainLoop) and epoch > self._epoch:
            # The epoch is over although its counter has not moved yet.
            return {'epoch': epoch, 'batch': 0}
        return {'epoch': self._pass, 'batch': self._batch + iteration - self._iter}

    @property
    def images_per_step(self) -> int | None:
        """The number of images in a step, of all processes together; None if the loader does not
        say."""
        size = getattr(self.dataloader.batch_sampler, 'batch_size', None)
        return None if size is None else size * get_world_size()

    def needs_no_validation(self, epoch: int, iteration: int) -> bool:
        """Whether the weights of this epoch and iteration have been validated, or need not be."""
        return (epoch, iteration) == (self._epoch, self._iter) and not self._validation_is_due

    def continue_at(self, meta: dict[str, object]) -> None:
        """Take the position from a checkpoint's meta, also from one that mmengine wrote."""
        position = meta.get('data')
        if position is None:  # It was not saved, so it is computed from the counters.
            length = len(self.dataloader)
            if isinstance(self, _EpochBasedTrainLoop):
                done = self._iter - self._epoch * length
                position = {'epoch': self._epoch, 'batch': done if 0 < done < length else 0}
            elif _is_endless(self.dataloader):
                position = {'epoch': 0, 'batch': self._iter}
            else:
                position = dict(zip(('epoch', 'batch'), divmod(self._iter, length), strict=True))
        self._pass, self._batch = position['epoch'], position['batch']
        before, now = meta.get('images_a_step'), self.images_per_step
        # A position counts batches, so it means something else if the number of images in a batch
        # has changed.
        if before and now and before != now:
            self._batch = self._batch * before // now
            self.runner.logger.warning(
                f'the checkpoint was trained with {before} images a step, and now there are {now}: '
                'iterations are counted on as they are, and the pass continues at the same image')
        self._validation_is_due = not meta.get('validated', False)
        if reason := why_resume_is_inexact(self.dataloader):
            self.runner.logger.warning('the resumed run may differ from one that was not '
                                       f'interrupted: {reason}')

    @property
    def is_between_iterations(self) -> bool:
        """Whether weights, optimizer and counters all belong to the same iteration."""
        return not self.closing and self._iter == getattr(self.runner.optim_wrapper,
                                                          '_inner_count', None)

    def _start_pass_over_data(self) -> None:
        batches = self.dataloader.batch_sampler
        if isinstance(batches, SeededBatchSampler):
            batches.start(self._pass, self._batch)

    def _after_iter(self) -> None:
        self._batch += 1
        self._validation_is_due = True
        self.runner.stop_if_interrupted()

    def _validate(self, done: int, last: int) -> None:
        """Validate when it is time. After a resume this happens only if that validation was not
        complete."""
        self._decide_current_val_interval()
        if (self._validation_is_due and self.runner.val_loop is not None
                and done >= max(self.val_begin, 1)
                and (done % self.val_interval == 0 or done == last)):
            self.runner.val_loop.run()
            self.closing = False
        self._validation_is_due = False

    def mark_validated(self) -> None:
        """Record that there are metrics, before the hooks that act on them run."""
        self.closing, self._validation_is_due = True, False


def _is_endless(dataloader: DataLoader) -> bool:
    sampler = getattr(dataloader.batch_sampler, 'sampler', None)
    return 'Infinite' in type(sampler).__name__


class EpochBasedTrainLoop(ResumableLoop, _EpochBasedTrainLoop):
    """mmengine's loop over epochs with exact resume; see :class:`mmposenc.engine.Runner`."""

    def __init__(self, runner: Runner, dataloader: DataLoader | dict, *args: object,
                 **kwargs: object) -> None:
        super().__init__(runner, self.seeded_train_loader(runner, dataloader), *args, **kwargs)

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
        self._pass = self._epoch
        self.runner.call_hook('before_train_epoch')
        self.runner.model.train()
        self._start_pass_over_data()
        for idx, data_batch in enumerate(self.dataloader, self._batch):
            self.run_iter(idx, data_batch)
            self._after_iter()
        self.closing = True
        self.runner.call_hook('after_train_epoch')
        self._epoch += 1
        self._pass, self._batch, self.closing = self._epoch, 0, False


class _UnstartedLoader:
    """A loader that mmengine's constructor may look at without starting it."""

    def __init__(self, loader: DataLoader) -> None:
        self.loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def __iter__(self) -> Iterator[object]:
        return iter(())


class IterBasedTrainLoop(ResumableLoop, _IterBasedTrainLoop):
    """mmengine's loop over iterations with exact resume; see :class:`mmposenc.engine.Runner`."""

    def __init__(self, runner: Runner, dataloader: DataLoader | dict, *args: object,
                 **kwargs: object) -> None:
        loader = self.seeded_train_loader(runner, dataloader)
        super().__init__(runner, _UnstartedLoader(loader), *args, **kwargs)
        self.dataloader, self.dataloader_iterator = loader, self._endless_batches()

    def _endless_batches(self) -> Iterator[object]:
        """Yield batches for ever: one pass over the data after the other."""
        while True:
            self._start_pass_over_data()
            first = self._batch
            yield from self.dataloader
            if self._batch == first == 0:
                raise ValueError('train_dataloader: its data set gives no batch; at least one is '
                                 'required')
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
            self._after_iter()
            self._validate(self._iter, self._max_iters)
        self.closing = True
        self.runner.call_hook('after_train_epoch')
        self.runner.call_hook('after_train')
        return self.runner.model
