"""Who is started when, and how often runs that wait are looked at; nothing is trained."""
from types import SimpleNamespace

import pytest

from mmposenc.engine.variants.encodings import read_entries
from mmposenc.lab.compare.running import schedule
from mmposenc.lab.compare.running.recording import read_record, write_record
from mmposenc.lab.compare.running.workers import TAKEN
from mmposenc.lab.compare.study.study import Run

POLLS = 5  # of a run until it is over


class Job:
    """A run that ends with a status after so many looks."""

    def __init__(self, run, status):
        self.run, self.status, self.looks = run, status, iter(range(POLLS))

    def done(self):
        if next(self.looks, None) is not None:
            return False
        if self.status == 0:
            write_record(self.run, read_record(self.run), status='finished', safe=False,
                         tests=[dict(factor=1.0, value=1.0)])
        return True

    def result(self):
        return self.status


class Workers:
    def __init__(self, jobs, statuses=()):
        self.jobs, self.started, self.statuses = jobs, [], iter(statuses)
        self.stopped = False

    def start(self, runs):
        assert runs, 'submitit warns of an array without jobs'
        self.started += runs
        return [Job(run, next(self.statuses, 0)) for run in runs]

    def stop(self):
        self.stopped = True


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.setattr(schedule, '_WAIT', 0)
    entry, = read_entries(['none'])
    runs = [Run(tmp_path / f'seed{seed}', entry, seed) for seed in range(20)]
    return SimpleNamespace(runs=lambda: runs, sizes=(1.0,))


def carried_out(study, workers):
    """The seeds of runs that ended, in this order."""
    ended = []
    schedule.carry_out_all(study, workers, lambda run: run is None or ended.append(run.seed))
    assert workers.stopped
    return ended


def test_records_are_read_when_a_run_ends(study, monkeypatch):
    """Not at each look at the jobs: with many runs that would be all that a command does."""
    monkeypatch.setattr(schedule, '_WAIT_FOR_OTHERS', 1e9)
    read, workers = [], Workers(2)
    monkeypatch.setattr(schedule, 'read_record', lambda run: read.append(run) or read_record(run))
    assert carried_out(study, workers) == list(range(20)) and workers.started == study.runs()
    assert len(read) <= 20 * 12


def test_each_run_is_tried_once_and_what_others_have_is_waited_for(study, monkeypatch):
    first, second, third, *_ = study.runs()
    study.runs = lambda: [first, second, third]
    monkeypatch.setattr(schedule, '_WAIT_FOR_OTHERS', 0)
    looks = iter(range(30))
    monkeypatch.setattr(schedule, 'is_taken', lambda run: run is second
                        and next(looks, None) is not None)
    workers = Workers(None, [3, TAKEN])  # the first fails; another command was faster with the last
    assert carried_out(study, workers) == [0, 2, 1]
    assert workers.started == [first, third, third, second]
    assert read_record(first)['note'] == f'ended with status 3; see {first.folder / "log.txt"}'


@pytest.mark.parametrize('before, status, after, note', [
    ('running', -15, 'failed', 'killed by SIGTERM'),
    ('waiting', -9, 'failed', 'killed by SIGKILL (the system kills so where memory runs out)'),
    ('running', 1, 'failed', 'ended with status 1: two'), ('finished', -15, 'finished', None)])
def test_a_crash_is_recorded(study, before, status, after, note):
    run = study.runs()[0]
    write_record(run, read_record(run), status=before)
    (run.folder / 'log.txt').write_text('one\ntwo\n')
    schedule._record_crash(run, status)
    record = read_record(run)
    assert (record['status'], record['note']) == (
        after, f'{note}; see {run.folder / "log.txt"}' if note else '')
