"""Runs as jobs of a cluster: an array, time limits, and a command that is given again."""
import os
import signal
import threading
import time

import pytest
from helpers import fake_slurm
from helpers.tiny_studies import Here, tiny_study

from mmposenc.lab.compare.running import recording, schedule, workers
from mmposenc.lab.compare.study.files import read_json, write_json

submitit = pytest.importorskip('submitit')


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Makes workers, as each call of the command does; and the folder of states. Tasks that did not
    begin end with the test."""
    states = fake_slurm.install(tmp_path, monkeypatch)
    yield lambda: workers.SubmittedWorkers(tmp_path / 'jobs', 'slurm', {'timeout_min': 60}), states
    for task in states.glob('*_*'):
        if task.read_text() == 'PENDING':
            task.write_text('CANCELLED')


def arrays(states) -> int:
    return len(list(states.glob('*.sh')))


def carry_out(study, jobs):
    schedule.carry_out_all(study, jobs, lambda run: None)


def without_times(run):
    record = recording.read_record(run)
    return {key: record[key] for key in ('status', 'tests', 'parameters')}


@pytest.mark.slow
def test_a_run_at_its_time_limit_is_queued_again_and_goes_on(tmp_path, slurm):
    make, states = slurm
    study = tiny_study(tmp_path, epochs=6)
    first, second = study.runs()

    def limit():
        while not recording.read_record(first)['share']:
            time.sleep(0.05)
        os.kill(int((states / '1_0.pid').read_text()), signal.SIGUSR2)
    threading.Thread(target=limit, daemon=True).start()
    carry_out(study, make())
    assert arrays(states) == 1 and (states / 'requeued').read_text() == '"1_0"\n'
    assert (states / '1_0').read_text() == (states / '1_1').read_text() == 'COMPLETED'
    (tmp_path / 'here').mkdir()
    plain = tiny_study(tmp_path / 'here', epochs=6)
    Here().start(plain.runs())
    for run, other in zip(study.runs(), plain.runs(), strict=True):
        assert without_times(run) == without_times(other)


def test_jobs_that_are_queued_are_not_queued_again(tmp_path, slurm, monkeypatch):
    make, states = slurm
    (states / 'hold').touch()
    study = tiny_study(tmp_path, seeds=(0, 1))
    for _ in range(2):
        handles = make().start(study.runs())
        assert arrays(states) == 1 and [each.job_id for each in handles] == [
            f'1_{task}' for task in range(4)]
    # One failed, one is not known any more, one was queued just now and is not known yet.
    (states / '1_0').write_text('FAILED')
    for task in 1, 2:
        (states / f'1_{task}').unlink()
    kept = study.runs()[1].folder / 'job.json'
    write_json(kept, {**read_json(kept), 'time': time.time() - workers.UNKNOWN_FOR})
    submitit.SlurmJob.watcher.clear()  # of this process, as in a new one
    handles = make().start(study.runs())
    assert [each.job_id for each in handles] == ['2_0', '2_1', '1_2', '1_3']


def test_the_environment_is_that_of_the_machines_that_trained(tmp_path):
    from mmposenc.lab.compare.page.results import collect_results
    study = tiny_study(tmp_path)
    assert collect_results(study)['environment']['torch']
    for run, device in zip(study.runs(), ('one GPU', 'another GPU'), strict=True):
        recording.write_record(run, recording.read_record(run), environment={
            'device': device, 'torch': '9.9'})
    assert collect_results(study)['environment'] == {'device': 'one GPU, another GPU',
                                                     'torch': '9.9'}
