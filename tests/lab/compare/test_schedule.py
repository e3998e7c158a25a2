"""Who is started when, and how often runs that wait are looked at; nothing is trained."""
from types import SimpleNamespace

import pytest

from mmposenc.engine.variants.encodings import read_entries
from mmposenc.lab.compare.running import schedule
from mmposenc.lab.compare.running.runs import new_record
from mmposenc.lab.compare.running.schedule import carry_out_all
from mmposenc.lab.compare.study.files import write_json
from mmposenc.lab.compare.study.study import Run

POLLS = 50  # of a run until it is over


class Workers:
    """Runs that are over, finished, after so many looks."""

    def __init__(self, jobs):
        self.jobs, self.started = jobs, []

    def start(self, runs):
        return [self._start(run) for run in runs]

    def _start(self, run):
        self.started.append(run)
        looks = iter([None] * POLLS)

        def poll():
            if next(looks, 0) is None:
                return None
            write_json(run.record_file, {**new_record(run), 'status': 'finished'}, safe=False)
            return 0
        return SimpleNamespace(poll=poll, stop=lambda signum: None)


@pytest.fixture
def study(tmp_path):
    entry, = read_entries(['none'])
    runs = [Run(tmp_path / f'seed{seed}', entry, seed, False) for seed in range(40)]
    return SimpleNamespace(runs=lambda: runs)


def carried_out(study, workers, complete=lambda run: run.record_file.is_file(), **waits):
    """How often it was asked whether a run is complete, and what was told."""
    asked, told = [], []

    def asking(run):
        asked.append(run)
        return complete(run)
    carry_out_all(study, workers, asking,
                  lambda run, event: told.append((run and run.seed, event)), wait=0, **waits)
    return asked, told


def test_what_another_command_ends_is_seen_while_this_one_waits(study):
    first, second, *_ = study.runs()
    study.runs = lambda: [first, second]
    workers, looks = Workers(1), iter(range(999))
    _, told = carried_out(study, workers, lambda run: next(looks) > 5 and run is second, look=0)
    assert workers.started == [first]
    assert told.index((1, 'ended')) < told.index((0, 'ended'))


def test_runs_that_wait_are_looked_at_when_one_ends(study):
    workers = Workers(2)
    asked, told = carried_out(study, workers, look=1e9)
    assert workers.started == study.runs()
    assert [seed for seed, event in told if event == 'ended'] == list(range(40))
    # Once at first; then all that wait, after each end; 40 x POLLS times as often before.
    assert len(asked) <= 40 + sum(range(41)) + 40
    assert len(told) >= 40 // 2 * POLLS


def test_a_crash_that_can_not_be_noted_ends_no_other_run(study, monkeypatch):
    def full(run, status):
        if run.seed == 0:
            raise OSError(28, 'No space left on device', str(run.record_file))
    monkeypatch.setattr(schedule, '_record_crash', full)
    workers = Workers(2)
    _, told = carried_out(study, workers)
    assert workers.started == study.runs()
    lost, = (event for seed, event in told if seed == 0 and event != 'started')
    assert lost.startswith('ended, which could not be saved: ')
    assert lost.endswith('run.json: No space left on device')
    assert [seed for seed, event in told if event == 'ended'] == list(range(1, 40))
