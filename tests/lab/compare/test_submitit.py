"""Runs as jobs of a cluster, by submitit's executor for one machine."""
import logging
import sys
import time

import pytest
from helpers.tiny_studies import Here, tiny_study

from mmposenc.lab.compare.running import recording, runs, schedule, workers

submitit = pytest.importorskip('submitit')


def jobs_in(folder):
    """Workers, as each call of the command makes them."""
    return workers.SubmittedWorkers(folder / 'jobs', 'local', {'timeout_min': 60})


def without_times(run):
    record = recording.read_record(run)
    return {key: record[key] for key in ('status', 'tests', 'parameters')}


@pytest.mark.slow
def test_a_run_at_its_time_limit_saves_itself_and_goes_on(tmp_path):
    """The job that takes its place is what submitit queues; here the command is given again."""
    study = tiny_study(tmp_path, epochs=150)  # It is still training when the signal comes.
    first, _ = study.runs()
    job, = jobs_in(tmp_path).start([first])
    while not recording.read_record(first)['share']:
        time.sleep(0.05)
    job._interrupt()
    job.wait()
    queued = submitit.core.utils.DelayedSubmission.load(job.paths.submitted_pickle)
    assert isinstance(queued.function, workers.RunInClusterJob)
    assert queued.args == (str(first.folder),) and list((first.folder / 'train').glob('*.pth'))
    assert recording.read_record(first)['status'] == 'running'
    schedule.carry_out_all(study, jobs_in(tmp_path), lambda run: None)
    (tmp_path / 'here').mkdir()
    plain = tiny_study(tmp_path / 'here', epochs=150)
    Here().start(plain.runs())
    for run, other in zip(study.runs(), plain.runs(), strict=True):
        assert without_times(run) == without_times(other)


@pytest.mark.slow
def test_a_run_that_is_over_ends_its_job_at_once(tmp_path):
    run, = tiny_study(tmp_path, names=['none']).runs()
    recording.write_record(run, recording.read_record(run), status='diverged')
    job, = jobs_in(tmp_path).start([run])
    assert job.result() == runs.NOT_FINISHED and recording.read_record(run)['tests'] == []


def test_the_environment_is_that_of_the_machines_that_trained(tmp_path):
    from mmposenc.lab.compare.page.results import collect_results
    study = tiny_study(tmp_path)
    assert collect_results(study).environment['torch']
    for run, device in zip(study.runs(), ('one GPU', 'another GPU'), strict=True):
        recording.write_record(run, recording.read_record(run), environment={
            'device': device, 'torch': '9.9'})
    assert collect_results(study).environment == {'device': 'one GPU, another GPU',
                                                     'torch': '9.9'}


def test_submitit_leaves_the_log_files_of_this_process_open(tmp_path, monkeypatch):
    monkeypatch.delenv('SUBMITIT_LOG_LEVEL', raising=False)
    for name in [name for name in sys.modules if name.partition('.')[0] == 'submitit']:
        monkeypatch.delitem(sys.modules, name)
    log = logging.FileHandler(tmp_path / 'log')
    workers.SubmittedWorkers(tmp_path / 'jobs', 'local', {'timeout_min': 5})
    assert log.stream is not None
    log.close()
