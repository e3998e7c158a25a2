import multiprocessing
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from mmengine.config import Config
from tinystudies import OWN, tiny_study

from mmposenc.lab.compare.running import timing
from mmposenc.lab.compare.running.timing import Cost, Estimate
from mmposenc.lab.compare.running.workers import LocalWorkers
from mmposenc.lab.compare.study.encodings import read_entries
from mmposenc.lab.compare.study.files import read_json
from mmposenc.lab.compare.study.lengths import Length
from mmposenc.lab.compare.study.study import Study

BASE = Config(dict(train_cfg=dict(by_epoch=True, max_epochs=10, val_interval=5)))
COST = Cost(start=10.0, step=0.1, epoch_steps=100, validation=5.0, tests=4.0)


def study(tmp_path, seconds=None, seeds=(0, 1, 2)):
    return Study(tmp_path, 'base.py', '', '', tuple(read_entries(['none', 'peg'])), seeds, (1.0,),
                 Length('epochs', 10), seconds)


def estimate(jobs, slow=COST):
    return Estimate({'none': COST, 'peg': slow}, jobs, BASE)


def test_a_run_is_the_sum_of_its_parts():
    one = estimate(1)
    assert one.run_seconds('none', Length('epochs', 10)) == 10 + 1000 * 0.1 + 2 * 5 + 4
    # A validation every second epoch and at the end.
    assert one.run_seconds('none', Length('epochs', 3)) == pytest.approx(10 + 30 + 2 * 5 + 4)
    # Loaders that begin anew, and what the first run of an encoding makes besides.
    more = estimate(1, COST._replace(epoch=2.0, extras=30.0))
    assert more.run_seconds('peg', Length('epochs', 10)) == 124 + 10 * 2
    assert more.run_seconds('peg', Length('epochs', 10), first=True) == 124 + 10 * 2 + 30


def test_runs_side_by_side_take_the_time_of_the_busiest(tmp_path):
    length = Length('epochs', 10)
    assert estimate(1).study_seconds(study(tmp_path), length) == 6 * 124
    assert estimate(2).study_seconds(study(tmp_path), length) == 3 * 124
    assert estimate(4).study_seconds(study(tmp_path), length) == 2 * 124
    # Figures and diagnosis are made once an encoding.
    shown = Estimate({name: COST._replace(extras=30.0) for name in ('none', 'peg')}, 2, BASE)
    assert shown.study_seconds(study(tmp_path), length) == 3 * 124 + 30
    # In the order of the runs: none 124 | peg 224, then none at 124, peg at 224.
    slow = estimate(2, COST._replace(step=0.2))
    assert slow.study_seconds(study(tmp_path, seeds=(0, 1)), length) == 224 + 224


def test_the_longest_training_that_fits(tmp_path):
    for seconds in (100, 200, 300, 390):
        asked = study(tmp_path, seconds)
        found = estimate(2).longest(asked)
        assert estimate(2).study_seconds(asked, found) <= 0.95 * seconds
        longer = Length('epochs', found.number + 1)
        assert estimate(2).study_seconds(asked, longer) > 0.95 * seconds
    assert estimate(2).longest(study(tmp_path, 1e6)) == Length('epochs', 10)  # the config's own


@pytest.mark.parametrize('seconds, spent, least', [
    (60, 0, '92s'),  # three runs, one after the other, of 10 + 10 + 5 + 4 s; 87 / 0.95 = 91.6
    (100, 19, '112s'),  # what checks and timing took is gone: (87 + 19) / 0.95 = 111.6
    (600, 600, '13min')])  # (87 + 600) / 0.95 = 723.2 s, rounded up
def test_a_budget_that_is_too_small_names_the_least(tmp_path, seconds, spent, least):
    with pytest.raises(ValueError, match=f'--budget: .* at least {least} are required'):
        estimate(2).longest(study(tmp_path, seconds), spent=spent)


def answers_of(share, tiny, scratch):
    """What a process would send that times some encodings."""
    sent = []
    timing.time_share(SimpleNamespace(send=sent.append), tiny.folder, scratch, share, time.time())
    return sent


def test_the_parts_are_timed_and_what_cannot_be_is_named(tmp_path):
    (tmp_path / 'own.py').write_text(OWN)
    tiny = tiny_study(tmp_path, names=['peg', f'{tmp_path}/own.py:Broken'], sizes=(1.0, 2.0))
    (name, cost), (none, seconds) = answers_of([0], tiny, tmp_path / 'timed')
    assert name == 'peg' and cost.epoch_steps == 2  # four pictures, two in a batch
    assert cost.epoch < 0.1  # no process loads data
    assert 0 < cost.step < 20
    assert 0 < cost.validation < cost.tests
    assert none == timing.EXTRAS and seconds > 0
    costs = read_json(tmp_path / 'timed' / 'peg' / 'costs.json')['content']
    assert [each['factor'] for each in costs] == [1, 2]
    (none, said), = answers_of([1], tiny, tmp_path / 'timed')
    assert none is None and said.endswith('own.py:Broken: RuntimeError: broken on purpose')


def test_steps_are_timed_without_the_validations_between_them(monkeypatch):
    times, clock = timing._Times(), [0.0]
    monkeypatch.setattr(timing.time, 'monotonic', lambda: clock[0])

    def after(seconds, what):
        clock[0] += seconds
        what(None)
    with pytest.raises(timing._Enough):
        for epoch in range(100):  # of a single step each, the first of which takes 3 s more
            after(50, times.before_train_epoch)
            after(.5 if epoch else 3.5, times.after_train_iter)
    assert len(times.gaps) == 14
    assert (times.one, times.first, times.seconds(10)) == (.5, 3, 8)
    counted = timing._Times()  # a training that counts iterations validates within its one epoch
    after(0, counted.before_train_epoch)
    for _ in range(4):
        after(1, counted.after_train_iter)
        after(30, counted.after_val)
    assert counted.gaps == [1] * 4


def test_what_is_slow_is_timed_less_often(monkeypatch):
    times, moments = timing._Times(), iter([0, 6, 12, 18])
    monkeypatch.setattr(timing.time, 'monotonic', lambda: next(moments))
    times.before_test_epoch(None)
    times.after_test_iter(None), times.after_test_iter(None)
    with pytest.raises(timing._Enough):  # one at the least that counts
        times.after_test_iter(None)


def test_processes_share_what_is_timed():
    assert timing.shares(5, 2) == [[0, 2, 4], [1, 3]]
    assert timing.shares(2, 3) == [[0], [1], [0]]  # as many at once as there will be runs
    for count, jobs in ((1, 1), (20, 3), (3, 20)):
        assert {i for share in timing.shares(count, jobs) for i in share} == set(range(count))


class Process:
    """Does what it is asked when it is started."""

    def __init__(self, target, args):
        self.start, self.exitcode = lambda: self.done(target(*args)), None

    def done(self, status):
        self.exitcode = status

    def kill(self):
        pass

    join = kill


@pytest.mark.parametrize('jobs, said', [(2, None), (3, 'peg: no memory'), (4, 'killed')])
def test_the_parts_of_all_are_put_together(tmp_path, monkeypatch, jobs, said):
    def share_timed(answers, folder, scratch, share, started):
        number = int(scratch.name.removeprefix('times'))
        if number == jobs - 1 and said:
            return -9 if said == 'killed' else answers.send((None, said))
        for each in share:
            answers.send((('none', 'peg')[each], COST._replace(step=each + 1.0)))
        answers.send((timing.EXTRAS, number * 10.0 + 10))
        return 0
    monkeypatch.setattr(timing, '_quietly', share_timed)
    monkeypatch.setattr(timing.multiprocessing, 'get_context', lambda kind: SimpleNamespace(
        Pipe=multiprocessing.Pipe, Process=Process))
    monkeypatch.setattr(Study, 'base', lambda self: BASE)
    told = []
    with nullcontext() if said is None else pytest.raises(
            ValueError, match=f'a training could not be timed: {said}$'):
        found = timing.measure(study(tmp_path), LocalWorkers(jobs), told.append)
    if said is None:  # extras took 10 and 20 s
        assert found.costs == {'none': COST._replace(step=1.0, extras=15.0),
                               'peg': COST._replace(step=2.0, extras=15.0)}
        assert found.jobs == 2 and told[-1] == '  2 of 2 encodings timed'
