"""Randomness that depends only on the position in a training, so that a resumed run repeats it."""
from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from mmengine.dataset import RepeatDataset
from mmengine.device import get_device
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset


class SeedHook(Hook):
    """Seeds every training iteration from the run's seed, the iteration and the process.

    A run that was interrupted and resumed then draws the same drop paths and dropouts as one that
    was not, to the bit. What is drawn for a sample, such as a flip, has a seed of its own; see
    :class:`SeededBatchSampler`.
    """
    priority = 'VERY_HIGH'

    def before_train_iter(self, runner: Runner, batch_idx: int, data_batch: object = None
                          ) -> None:
        seed_all(iteration_seed(runner))


def iteration_seed(runner: Runner) -> int:
    """The seed of the runner's current iteration."""
    return seed_of_position(runner.seed, runner.iter, runner.rank)


def seed_of_position(seed: int, *position: int) -> int:
    """A seed below 2**31 that in practice no other position has."""
    return int(np.random.SeedSequence([seed, *position]).generate_state(1)[0] % 2**31)


def seed_all(seed: int) -> None:
    """Seed the generators of Python, NumPy and torch."""
    random.seed(seed)
    np.random.seed(seed)
    if get_device() != 'cpu':
        torch.manual_seed(seed)
    else:
        # This draws the same numbers as torch.manual_seed, which takes a stack trace for each kind
        # of device that is not there: half a millisecond for a sample, two fifths of the training
        # time of a small classifier.
        torch.default_generator.manual_seed(seed)


class SeededIndex(NamedTuple):
    """The index of a sample, with the position in the training that seeds its augmentation."""

    sample: int
    position: tuple[int, ...]


class SeededBatchSampler:
    """A batch sampler whose indices know their position, and that can start in the middle.

    The seed of a sample is from (the run's seed, the epoch, its position in the epoch over all
    processes). So it does not matter how many workers load, nor how many processes share a batch,
    as long as together they take the samples in the same order.

    Args:
        batches: a batch sampler of one process.
        seed: the run's.
        rank: this process.
        world_size: number of processes.
    """

    def __init__(self, batches: BatchSampler, seed: int, rank: int = 0, world_size: int = 1
                 ) -> None:
        self.batches, self.seed, self.rank, self.world_size = batches, seed, rank, world_size
        self.epoch = self.skip = 0

    def start(self, epoch: int, skip: int = 0) -> None:
        """Set the start of the next pass: the epoch, and how many of its batches are done."""
        self.epoch, self.skip = epoch, skip
        for sampler in (getattr(self.batches, 'sampler', None), self.batches):
            if hasattr(sampler, 'set_epoch'):
                sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[list[SeededIndex]]:
        skip, self.skip, before = self.skip, 0, 0
        for number, batch in enumerate(self.batches):
            if number >= skip:
                yield [SeededIndex(index, (self.seed, self.epoch,
                                           (before + i) * self.world_size + self.rank))
                       for i, index in enumerate(batch)]
            before += len(batch)

    def __len__(self) -> int:
        return len(self.batches)

    def __getattr__(self, name: str) -> Any:
        if name == 'batches':  # While an object is being copied, this attribute is not there yet.
            raise AttributeError(name)
        return getattr(self.batches, name)


class SeededDataset(Dataset):
    """A data set that accepts :class:`SeededIndex`. In all else it behaves as the data set inside
    it, which hooks read and change (mmdet's PipelineSwitchHook sets ``pipeline``)."""

    def __init__(self, dataset: Dataset) -> None:
        object.__setattr__(self, 'dataset_within', dataset)

    def __getitem__(self, item: int | SeededIndex) -> Any:
        if not isinstance(item, SeededIndex):
            return self.dataset_within[item]
        seed_all(seed_of_position(*item.position))
        return self.dataset_within[item.sample]

    def __len__(self) -> int:
        return len(self.dataset_within)

    def __getattr__(self, name: str) -> Any:
        if name == 'dataset_within' or name.startswith('__'):
            raise AttributeError(name)
        return getattr(self.dataset_within, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self.dataset_within, name, value)

    def __getstate__(self) -> Dataset:
        return self.dataset_within

    def __setstate__(self, state: Dataset) -> None:
        object.__setattr__(self, 'dataset_within', state)


#: The arguments of a DataLoader besides data set and batches.
_LOADER_OPTIONS = ('num_workers', 'collate_fn', 'pin_memory', 'timeout', 'worker_init_fn',
         'multiprocessing_context', 'generator', 'prefetch_factor', 'persistent_workers',
         'in_order')


def with_seeded_batches(loader: DataLoader, seed: int, rank: int, world_size: int) -> DataLoader:
    """The same loader with :class:`SeededBatchSampler`; the loader itself if it has no indices to
    seed.
    """
    if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        return loader
    options = {name: getattr(loader, name) for name in _LOADER_OPTIONS if hasattr(loader, name)}
    return DataLoader(SeededDataset(loader.dataset), **options,
                      batch_sampler=SeededBatchSampler(loader.batch_sampler, seed, rank,
                                                       world_size))


def why_resume_is_inexact(loader: DataLoader) -> str | None:
    """Why a resumed run may draw other data than one that was not interrupted; None if it cannot.
    """
    if not isinstance(loader.batch_sampler, SeededBatchSampler):
        return 'its data set has no indices, so there is no position to continue from'
    kind = type(getattr(loader.dataset, 'dataset_within', loader.dataset))
    known = kind.__module__.partition('.')[0] in ('mmposenc', 'mmengine', 'mmdet', 'mmseg',
                                                  'mmpretrain')
    if loader.persistent_workers and not known:
        return (f'workers persist, and what {kind.__name__} keeps in them from epoch to epoch is '
                'lost (persistent_workers=False ends them with every epoch)')
    pipeline = getattr(loader.dataset, 'pipeline', None)
    for step in getattr(pipeline, 'transforms', pipeline) or ():
        if (name := type(step).__name__).startswith('Cached'):
            return f'{name} draws from the images it saw last, which are not in the checkpoint'
    return None


class FewViews(RepeatDataset):
    """Draws the augmentation of an image from ``views`` that are always the same.

    What a pipeline draws for a view has a seed of its own, from (``seed``, the image's number, the
    view): the same in every epoch, run and process. So features of a frozen backbone can be stored
    (:class:`~.feature_cache.FeatureCacheHook`). Which view an epoch takes is drawn as augmentations
    are otherwise, and so depends on the run's seed.

    Args:
        dataset: a data set or its config.
        views: ways to augment each image.
        seed: of the views.

    Raises:
        ValueError: for less than one view.
    """

    def __init__(self, dataset: Dataset | dict, views: int = 4, seed: int = 0) -> None:
        if views < 1:
            raise ValueError(f'views={views} must be at least 1')
        super().__init__(dataset, times=1)
        self.views, self.seed = views, seed

    def __getitem__(self, idx: int) -> dict[str, Any]:
        """Image ``idx``, augmented in one of the fixed ways."""
        seed_all(seed_of_position(self.seed, idx, int(np.random.randint(self.views))))
        return super().__getitem__(idx)
