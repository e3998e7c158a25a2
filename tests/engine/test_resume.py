"""Trainings that are killed and resumed equal one that was not, to the bit."""
from __future__ import annotations

from itertools import product

import kills
import pytest
import torch

pytestmark = [pytest.mark.slow, pytest.mark.skipif(torch.cuda.is_available(),
                                                   reason='to the bit on a CPU')]

#: 20 kills: of every schedule, in the middle of an iteration, of a write, of a validation, between
#: a checkpoint and the note of it, and before the removal of an old one where there is any.
MOMENTS = [('iteration', 7), ('write', 2), ('renamed', 3), ('validation', 9), ('iteration', 11)]
PLAN = [(schedule, ('remove', 2) if 'persist' in schedule and moment == ('iteration', 11)
         else moment) for schedule, moment in product(kills.SCHEDULES, MOMENTS)]


@pytest.fixture(scope='module')
def children(tmp_path_factory):
    return kills.Children(tmp_path_factory.mktemp('kills'))


@pytest.fixture(scope='module')
def whole(children):
    """What a training that nobody kills leaves, by schedule."""
    found: dict[str, dict] = {}

    def of(schedule: str) -> dict:
        if schedule not in found:
            assert children.train(schedule, schedule) == 0
            found[schedule] = kills.result(children.root / schedule)
        return found[schedule]
    return of


@pytest.mark.parametrize('schedule, moment', PLAN, ids=lambda value: ' '.join(map(str, value))
                         if isinstance(value, tuple) else value)
def test_a_kill_changes_nothing(children, whole, schedule, moment) -> None:
    name = f'{schedule} {moment}'
    assert children.kill_and_resume(name, schedule, moment) == 1
    assert kills.differences(whole(schedule), kills.result(children.root / name)) == []


def test_the_comparison_sees_a_single_bit(whole) -> None:
    one = whole('by epoch')
    other = {**one, 'state_dict': {name: value.clone() for name, value
                                   in one['state_dict'].items()}}
    assert kills.differences(one, other) == []
    name = next(name for name, value in other['state_dict'].items() if value.is_floating_point())
    flat = other['state_dict'][name].view(-1)
    flat[:1] = torch.nextafter(flat[:1], torch.tensor(9.))
    assert kills.differences(one, other) == [f'.state_dict.{name}']
    assert len(one['logged']) == 16 and one['ema_state_dict'] and one['optimizer']['state']
