"""Runs as jobs of a cluster: an array, time limits, and a command that is given again."""
import os
import signal
import threading
import time

import pytest
from helpers import fake_slurm
from helpers.tiny_studies import Here, tiny_study

from mmposenc.lab.compare.running import recording, runs, schedule, workers

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


@pytest.mark.slow
def test_of_two_jobs_of_a_run_the_second_ends_at_once(tmp_path, slurm):
    """As after a command that ended, and was given again."""
    make, states = slurm
    (states / 'hold').touch()
    study = tiny_study(tmp_path, names=['none'])
    run, = study.runs()
    first, = make().start([run])
    assert first.job_id == '1_0' or first.job_id == '1'
    recording.write_record(run, recording.read_record(run), status='diverged')
    (states / 'hold').unlink()
    carry_out(study, make())
    assert first.result() == runs.NOT_FINISHED and recording.read_record(run)['tests'] == []


def test_the_environment_is_that_of_the_machines_that_trained(tmp_path):
    from mmposenc.lab.compare.page.results import collect_results
    study = tiny_study(tmp_path)
    assert collect_results(study)['environment']['torch']
    for run, device in zip(study.runs(), ('one GPU', 'another GPU'), strict=True):
        recording.write_record(run, recording.read_record(run), environment={
            'device': device, 'torch': '9.9'})
    assert collect_results(study)['environment'] == {'device': 'one GPU, another GPU',
                                                     'torch': '9.9'}
