"""Randomness that depends only on the position in a training, so that a resumed run repeats it."""
from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from mmengine.device import get_device
from torch.utils.data import BatchSampler, DataLoader, IterableDataset


def seed_of_position(seed: int, *position: int) -> int:
    """A seed below 2**31 made of a training's seed and a position in it, such as the iteration and
    the process; two positions hardly ever have the same one."""
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


class SeededBatch(list[int]):
    """The indices of a batch, which seed all generators before each of its samples is read.

    A loader goes through them in the process that reads the samples, so neither data sets nor
    workers need to know of seeds.

    Args:
        indices: the indices of the samples.
        seed, epoch: of the training.
        positions: the positions of the samples in the epoch, over all processes.
    """

    def __init__(self, indices: Iterable[int], seed: int, epoch: int, positions: Sequence[int]
                 ) -> None:
        super().__init__(indices)
        self.seed, self.epoch, self.positions = seed, epoch, positions

    def __iter__(self) -> Iterator[int]:
        for index, position in zip(super().__iter__(), self.positions, strict=True):
            seed_all(seed_of_position(self.seed, self.epoch, position))
            yield index

    def __reduce__(self) -> tuple[object, ...]:
        # By itself pickle would go through the indices, and seed.
        return SeededBatch, (self[:], self.seed, self.epoch, self.positions)


class SeededBatchSampler:
    """A batch sampler of :class:`SeededBatch`, which can start in the middle of an epoch.

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
        self.sampler = getattr(batches, 'sampler', None)
        self.batch_size: int | None = getattr(batches, 'batch_size', None)
        self.epoch: int | None = None
        self.skip = 0

    def start(self, epoch: int, skip: int = 0) -> None:
        """Set the start of the next pass: the epoch, and how many of its batches are done."""
        self.epoch, self.skip = epoch, skip
        for sampler in (self.sampler, self.batches):
            if hasattr(sampler, 'set_epoch'):
                sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[SeededBatch]:
        if self.epoch is None:
            # mmengine 0.10 starts its workers before it is known where a training continues.
            return
        epoch, skip, self.skip, done = self.epoch, self.skip, 0, 0
        for number, batch in enumerate(self.batches):
            first, done = done, done + len(batch)
            if number >= skip:
                yield SeededBatch(batch, self.seed, epoch, range(
                    first * self.world_size + self.rank, done * self.world_size + self.rank,
                    self.world_size))

    def __len__(self) -> int:
        return len(self.batches)


#: The arguments of a DataLoader besides data set and batches.
_LOADER_OPTIONS = ('num_workers', 'collate_fn', 'pin_memory', 'timeout', 'worker_init_fn',
                   'multiprocessing_context', 'generator', 'prefetch_factor',
                   'persistent_workers', 'in_order')


def with_seeded_batches(loader: DataLoader, seed: int, rank: int, world_size: int) -> DataLoader:
    """The same loader with :class:`SeededBatchSampler`; the loader itself if it has no indices to
    seed.
    """
    if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        return loader
    options = {name: getattr(loader, name) for name in _LOADER_OPTIONS if hasattr(loader, name)}
    return DataLoader(loader.dataset, **options, batch_sampler=SeededBatchSampler(
        loader.batch_sampler, seed, rank, world_size))
