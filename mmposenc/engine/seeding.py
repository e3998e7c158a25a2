"""Randomness that a resumed run repeats."""
from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from mmengine.dataset import worker_init_fn
from mmengine.hooks import Hook
from mmengine.runner import set_random_seed


class EpochSeedHook(Hook):
    """Seeds every epoch from (the run's seed, the epoch, the process).

    A run that was interrupted and resumed then draws the same drop paths and augmentations as
    one that was not, to the bit. Data loader workers are seeded when they start, so this holds
    with ``train_dataloader.persistent_workers=False``, which starts them with every epoch
    (mmengine alone would then give every epoch the same augmentations). In a loop counted in
    iterations the order of the images and the optimizer continue exactly, and the draws after a
    resume are new ones.
    """
    priority = 'VERY_HIGH'

    def before_train_epoch(self, runner: Any) -> None:
        loader, start = runner.train_dataloader, max(runner.epoch, runner.iter)
        seed = epoch_seed(runner.seed, start, runner.rank)
        set_random_seed(seed, deterministic=runner.deterministic)
        loader.worker_init_fn = partial(worker_init_fn, num_workers=loader.num_workers,
                                        rank=runner.rank, seed=seed)


def epoch_seed(seed: int, epoch: int, rank: int) -> int:
    """A seed below 2**31 - 2**20 that no other epoch or process shares in practice."""
    state = np.random.SeedSequence([seed, epoch, rank]).generate_state(1)[0]
    return int(state % (2**31 - 2**20))
