"""Seeds of epochs."""
from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import torch
from torch.utils.data import DataLoader

from mmposenc.engine import EpochSeedHook
from mmposenc.engine.seeding import epoch_seed


def test_seeds_differ_by_run_epoch_and_process() -> None:
    seeds = {epoch_seed(run, epoch, rank) for run in range(10) for epoch in range(40)
             for rank in range(8)}
    assert len(seeds) == 10 * 40 * 8
    assert max(seeds) < 2**31
    assert epoch_seed(3, 4, 5) == epoch_seed(3, 4, 5)


class Draws(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> list[float]:
        return [random.random(), np.random.rand(), torch.rand(1).item()]


def draws(epochs: list[int], workers: int) -> list:
    loader = DataLoader(Draws(), num_workers=workers, collate_fn=list)
    run = SimpleNamespace(train_dataloader=loader, seed=7, rank=0, deterministic=False, iter=0)
    out = []
    for epoch in epochs:
        run.epoch = epoch
        EpochSeedHook().before_train_epoch(run)
        out.append((list(loader), torch.rand(2).tolist()))
        torch.rand(5)  # what else happens in an epoch does not matter
    return out


def test_an_epoch_draws_the_same_whatever_came_before() -> None:
    for workers in (0, 2):
        through = draws([0, 1, 2], workers)
        assert draws([2], workers)[0] == through[2]
        assert through[1] != through[2]
