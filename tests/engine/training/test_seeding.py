"""Seeds of iterations and samples."""
import pickle
import random

import numpy as np
import pytest
import torch
from helpers import tiny_run
from mmengine.dataset import DefaultSampler, InfiniteSampler
from mmengine.hooks import Hook
from torch.utils.data import DataLoader

from mmposenc.engine.training import seeding


def test_seeds_differ_by_run_place_and_process() -> None:
    seeds = {seeding.seed_of_position(run, epoch, rank) for run in range(10) for epoch in range(40)
             for rank in range(8)}
    assert len(seeds) == 10 * 40 * 8
    assert max(seeds) < 2**31
    assert seeding.seed_of_position(3, 4, 5) == seeding.seed_of_position(3, 4, 5)


class Draws(Hook):
    def __init__(self) -> None:
        self.drawn: list[float] = []

    def before_train_iter(self, runner, batch_idx, data_batch=None) -> None:
        self.drawn += [random.random(), np.random.rand(), torch.rand(1).item()]


def test_an_iteration_draws_the_same_whatever_came_before(tmp_path) -> None:
    hooks = [Draws() for _ in range(3)]
    for hook, name, epochs in zip(hooks, ('whole', 'resumed', 'resumed'), (2, 1, 2), strict=True):
        tiny_run.runner(tmp_path / name, epochs, custom_hooks=[hook], randomness=dict(seed=7),
                        resume=hook is hooks[2]).train()
    whole, begun, resumed = (hook.drawn for hook in hooks)
    assert whole == begun + resumed and len(set(whole)) == 12


def test_torch_draws_what_its_own_seed_gives() -> None:
    for seed in (0, 3, 2**31 - 1):
        torch.manual_seed(seed)
        expected = torch.randn(4)
        seeding.seed_all(seed)
        assert torch.equal(torch.randn(4), expected)
        assert torch.initial_seed() == seed


class DrawnSamples(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> tuple:
        return index, random.random(), np.random.rand(), torch.rand(1).item()


def loader(workers: int = 0, endless: bool = False, rank: int = 0, world: int = 1, batch: int = 2,
           **kwargs) -> DataLoader:
    data = DrawnSamples()
    sampler = InfiniteSampler(data, seed=5) if endless else DefaultSampler(data, seed=5)
    sampler.rank, sampler.world_size = rank, world  # as in one of several processes
    sampler.num_samples, sampler.total_size = 7, 7 + 7 % world
    return seeding.with_seeded_batches(DataLoader(data, batch_size=batch, sampler=sampler,
                                          num_workers=workers,
                                          collate_fn=list, **kwargs), 3, rank, world)


def take(load: DataLoader, epoch: int, skip: int, number: int = 99) -> list:
    load.batch_sampler.start(epoch, skip)
    return [batch for _, batch in zip(range(number), load, strict=False)]


@pytest.mark.parametrize('workers', [0, 2])
def test_a_pass_goes_on_in_the_middle_with_any_number_of_workers(workers) -> None:
    whole = take(loader(), 4, 0)
    assert [len(batch) for batch in whole] == [2, 2, 2, 1]
    random.random()
    assert take(loader(workers), 4, 2) == whole[2:]
    assert take(loader(workers), 5, 0) != whole
    kept = loader(workers, persistent_workers=workers > 0)
    assert take(kept, 3, 0) + take(kept, 4, 0) == take(loader(), 3, 0) + whole


def test_a_sample_that_comes_twice_is_drawn_anew() -> None:
    drawn = sum(take(loader(endless=True), 0, 0, 14), [])
    assert len({entry[1] for entry in drawn}) == 28 and len({entry[0] for entry in drawn}) == 7


def test_two_processes_draw_what_one_draws() -> None:
    one = take(loader(batch=4), 1, 0)
    parts = [take(loader(rank=rank, world=2, batch=2), 1, 0) for rank in (0, 1)]
    for whole, first, second in zip(one, *parts, strict=True):
        shared = [sample for pair in zip(first, second, strict=True) for sample in pair]
        assert shared[:len(whole)] == whole


def test_a_batch_seeds_where_it_is_read_and_not_while_it_is_sent() -> None:
    batch = seeding.SeededBatch([5, 2], 3, 1, range(8, 10))
    random.seed(0)
    expected = random.random()
    random.seed(0)
    sent = pickle.loads(pickle.dumps(batch))
    assert random.random() == expected
    drawn = [(index, random.random()) for index in sent]
    again = [(index, random.random()) for index in batch]
    assert drawn == again and [index for index, _ in drawn] == [5, 2]
    random.seed(seeding.seed_of_position(3, 1, 9))
    assert drawn[1][1] == random.random()


def test_data_without_indices_is_loaded_as_it_comes_and_nothing_before_the_start() -> None:
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield from range(3)
    assert len(list(seeding.with_seeded_batches(DataLoader(Stream()), 0, 0, 1))) == 3
    assert list(loader()) == []  # mmengine's loop starts a loader when it is built
