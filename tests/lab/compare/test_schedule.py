"""Who is started when, and what a crash leaves; nothing is trained."""
from functools import partial
from types import SimpleNamespace

import pytest

from mmposenc.engine.variants.encodings import read_entries
from mmposenc.lab.compare.running import schedule
from mmposenc.lab.compare.running.recording import read_record, write_record
from mmposenc.lab.compare.running.workers import TAKEN
from mmposenc.lab.compare.study.study import Run


class Workers:
    """Workers whose runs have ended when they are asked, with these statuses, then with 0."""

    def __init__(self, *statuses, jobs=None):
        self.jobs, self.started, self.stopped, self.most = jobs, [], False, 0
        self.statuses = iter(statuses)

    def start(self, runs):
        assert runs, 'submitit warns of an array without jobs'
        self.started += runs
        self.most = max(self.most, len(runs))
        return [SimpleNamespace(done=lambda: True, result=partial(self.end, run)) for run in runs]

    def end(self, run):
        status = next(self.statuses, 0)
        if status == 0:
            write_record(run, read_record(run), status='finished', safe=False,
                         tests=[dict(factor=1.0, value=1.0)])
        return status

    def stop(self):
        self.stopped = True


@pytest.fixture
def study(tmp_path, monkeypatch):
    monkeypatch.setattr(schedule, '_WAIT', 0)
    entry, = read_entries(['none'])
    runs = [Run(tmp_path / f'seed{seed}', entry, seed) for seed in range(3)]
    return SimpleNamespace(runs=lambda: runs, sizes=(1.0,))


def test_each_run_is_tried_once_and_what_others_have_is_waited_for(study, monkeypatch):
    first, second, third = study.runs()
    monkeypatch.setattr(schedule, '_WAIT_FOR_OTHERS', 0)
    looks = iter(range(30))
    monkeypatch.setattr(schedule, 'is_taken', lambda run: run is second
                        and next(looks, None) is not None)
    ended, workers = [], Workers(3, TAKEN)  # The first fails; the last was another command's.
    schedule.carry_out_all(study, workers, lambda run: run is None or ended.append(run.seed))
    assert workers.stopped and ended == [0, 2, 1]
    assert workers.started == [first, third, third, second]
    assert read_record(first)['note'] == f'ended with status 3; see {first.folder / "log.txt"}'


def test_no_more_runs_are_started_than_there_are_workers(study):
    workers = Workers(jobs=2)
    schedule.carry_out_all(study, workers, lambda run: None)
    assert workers.started == study.runs() and workers.most == 2


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
