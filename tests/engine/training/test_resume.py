"""Trainings that are killed and resumed equal one that was not, to the bit; two and four processes
equal one on the same images: weights, buffers, mean losses."""
import signal
from itertools import product

import pytest
import torch
from helpers import killed_trainings
from helpers.scripts import ROOT, run_python
from helpers.train_in_processes import FAMILIES

pytestmark = [pytest.mark.slow, pytest.mark.skipif(torch.cuda.is_available(),
                                                   reason='to the bit, and processes, on a CPU')]

#: 20 kills: of every schedule, in the middle of an iteration, of a write, of a validation, between
#: a checkpoint and the note of it, and before the removal of an old one where there is any.
MOMENTS = [('iteration', 7), ('write', 2), ('renamed', 3), ('validation', 9), ('iteration', 11)]
PLAN = [(schedule, ('remove', 2) if 'persist' in schedule and moment == ('iteration', 11)
         else moment) for schedule, moment in product(killed_trainings.SCHEDULES, MOMENTS)]


@pytest.fixture(scope='module')
def children(tmp_path_factory):
    return killed_trainings.Children(tmp_path_factory.mktemp('kills'))


@pytest.fixture(scope='module')
def whole(children):
    """What a training that nobody kills leaves, by schedule."""
    found: dict[str, dict] = {}

    def of(schedule: str) -> dict:
        if schedule not in found:
            assert children.train(schedule, schedule) == 0
            found[schedule] = killed_trainings.result(children.root / schedule)
        return found[schedule]
    return of


@pytest.mark.parametrize('schedule, moment', PLAN, ids=lambda value: ' '.join(map(str, value))
                         if isinstance(value, tuple) else value)
def test_a_kill_changes_nothing(children, whole, schedule, moment) -> None:
    name, one = f'{schedule} {moment}', whole(schedule)
    assert len(one['logged']) > 12 and one['state_dict'] and one['optimizer']['state']
    assert children.train(name, schedule, moment) == -signal.SIGKILL
    assert children.train(name, schedule, resume=True) == 0
    assert one == killed_trainings.result(children.root / name)


@pytest.fixture(scope='module')
def results(tmp_path_factory) -> dict[int, dict]:
    folder = tmp_path_factory.mktemp('processes')
    run_python(ROOT / 'tests/helpers/train_in_processes.py', folder)
    return {world: torch.load(folder / f'world{world}.pt', weights_only=False)
            for world in (1, 2, 4)}


@pytest.mark.parametrize('world', [2, 4])
@pytest.mark.parametrize('name', FAMILIES)
def test_processes_equal_one(results, name: str, world: int) -> None:
    """After two steps on eight images; a loss to its size."""
    one, several = results[1][name], results[world][name]
    assert one.keys() == several.keys()
    for key, value in one.items():
        if value.is_floating_point():
            size = max(1.0, value.abs().max().item())
            assert (several[key] - value).abs().max().item() <= 1e-6 * size, key
