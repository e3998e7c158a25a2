"""What a run does: trainings, tests, costs, and what becomes of kills and errors."""
import os
import re
import signal
import time
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
from helpers.tiny_studies import OWN, carry_out_killed, in_another_folder, tiny_study

from mmposenc import engine
from mmposenc.checkpoint import load_checkpoint
from mmposenc.commands import train
from mmposenc.engine.training.lock import WorkDirLock
from mmposenc.engine.variants.applying import with_entry
from mmposenc.lab.compare.page.results import collect_results, write_results_and_report
from mmposenc.lab.compare.running import costs, runs
from mmposenc.lab.compare.running.planning import warn_of_changed_classes
from mmposenc.lab.compare.running.recording import is_over, is_taken, read_record
from mmposenc.lab.compare.running.runs import carry_out
from mmposenc.lab.compare.running.schedule import carry_out_all
from mmposenc.lab.compare.running.workers import TAKEN, LocalWorkers
from mmposenc.lab.compare.study.config import StudyConfig


def all_of(study):
    return [carry_out(study, run) for run in study.runs()]


def assert_same(study, other):
    """What must not depend on kills: records but for time and memory, and the weights."""
    for mine, its in zip(study.runs(), other.runs(), strict=True):
        one, two = read_record(mine), read_record(its)
        for key in ('encoding', 'seed', 'status', 'tests', 'parameters'):
            assert one[key] == two[key]
        one, two = (load_checkpoint(str(each.folder / record['checkpoint']))['state_dict']
                    for each, record in ((study, one), (other, two)))
        assert all(torch.equal(one[name], two[name]) for name in one | two)


def test_a_study_of_two_encodings_and_two_seeds(finished):
    study = finished
    records = [read_record(run) for run in study.runs()]
    assert [each['status'] for each in records] == ['finished'] * 4
    assert [(each['encoding'], each['seed']) for each in records] == [
        ('none', 0), ('peg', 0), ('none', 1), ('peg', 1)]
    # The numbers are those of the ordinary commands, on the same config.
    last = study.runs()[-1]
    for test in records[-1]['tests']:
        cfg = runs.run_config(study, last, 'again')
        assert cfg.randomness.seed == last.seed == 1
        assert cfg.default_hooks.checkpoint['out_dir'] is None
        if test['factor'] == 2:
            resize = dict(type='Resize', scale=64)
            cfg.test_dataloader.dataset.pipeline.insert(1, resize)
        checkpoint = str(study.folder / records[-1]['checkpoint'])
        assert engine.test(cfg, checkpoint)['accuracy/top1'] == test['value']
        # Each image is left out once, and the metric is that of the others.
        left = test['without_images']
        assert sum(left) / len(left) == pytest.approx(test['value'])
    assert records[1]['parameters'] - records[0]['parameters'] == 4 * 8 * (9 + 1)  # a PEG a stage


def test_the_recommended_config_is_the_users_and_trains(copied, tmp_path, monkeypatch):
    take = write_results_and_report(copied).take
    monkeypatch.chdir(tmp_path)
    best = copied.folder / take['file']
    head, text = best.read_text().split('\n', 2)[::2]
    assert head.startswith('# cls.py with ') and str(copied.folder) not in text
    entry, = (each for each in copied.entries if f'with {each.label}, ' in head)
    cfg = engine.load_config(str(best))
    assert cfg.model.to_dict() == with_entry(copied.base, entry).model.to_dict()
    assert cfg.train_dataloader.to_dict() == copied.base.cfg.train_dataloader.to_dict()
    assert take['command'] == f'mmposenc train {best} --work-dir work_dirs/best'
    train.main([*take['command'].split()[2:], '--cfg-options', 'train_cfg.max_epochs=1'])
    assert Path('work_dirs/best/epoch_1.pth').is_file()


@pytest.mark.parametrize('moment', [
    ('iteration', 3), pytest.param(('validation', 3), marks=pytest.mark.slow),
    pytest.param(('write', 2), marks=pytest.mark.slow)])
def test_a_run_that_is_killed_ends_as_one_that_is_not(finished, tmp_path, moment):
    one = replace(finished, entries=finished.entries[1:], seeds=(0,))
    other = in_another_folder(one, tmp_path / moment[0])
    run, = other.runs()
    # Not forked from this process, whose threads may hold locks.
    child = get_context('forkserver').Process(
        target=carry_out_killed, args=(other, run, moment))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert collect_results(other).runs[0]['status'] == 'waiting'
    assert carry_out(other, run)['status'] == 'finished'
    assert_same(one, other)
    assert 0 < read_record(run)['train_cpu_seconds'] < 60


@pytest.mark.parametrize('word, options, status, note, sizes', [
    ('none', {'optim_wrapper.optimizer.lr': 1e30}, 'diverged', 'is not finite; images: ', []),
    # Finite in training, and the first class of all in evaluation; at the larger size alone.
    ('own.py:Lost', {}, 'diverged', 'predictions are not finite: the output of backbone', []),
    ('own.py:LostWhereLarge', {}, 'finished', 'no test at 0.5x: hw_shape=.4, 4. is smaller than '
     'one cell.*; no test at 2x: .*the output of backbone', [1]),
    ('own.py:Broken', {}, 'failed', 'broken on purpose', [])])
def test_what_is_not_finite_is_no_result_and_what_fails_is_tried_again(
        tmp_path, monkeypatch, capfd, word, options, status, note, sizes):
    monkeypatch.chdir(tmp_path)
    Path('own.py').write_text(OWN)
    study = tiny_study(tmp_path, [word], sizes=(0.5, 1.0, 2.0), epochs=1, options=options)
    record, = all_of(study)
    assert record['status'] == status
    assert re.search(note, record['note']), record['note']
    assert is_over(study, record) == (status == 'diverged')  # the next call tries others again
    results = write_results_and_report(study)
    kept, = results.runs
    assert (kept['status'], kept['note']) == (status, record['note'])
    assert [test['factor'] for test in kept['tests']] == sizes
    assert [row['factor'] for row in results.summary if row['n']] == sizes
    # The next call says that a class, or its base class in a file, is no longer what was trained.
    capfd.readouterr()
    for text, changed in ((OWN + '# more', False), (OWN.replace('x / 0', 'x / 1'), 'Lost' in word)):
        Path('own.py').write_text(text)
        warn_of_changed_classes(study, {word: with_entry(study.base, study.entries[0])})
        assert (f'{word} was changed after' in capfd.readouterr().err) == changed


def test_costs_are_measured_once_and_what_can_not_be_measured_is_said(copied, capsys, monkeypatch):
    costs.measure_missing_costs(copied, timed=False)
    # The crops of training are smaller.
    base = StudyConfig(copied.base.cfg)
    base.trained_size = (8, 8)
    results = collect_results(replace(copied, base=base))
    rows = [each['costs'] for each in results.encodings]
    assert [{'factor': at['factor'], 'hw': at['hw']} for at in rows[0]] == results.sizes
    assert [[at['seconds'] for at in own] for own in rows] == [[None, None]] * 2
    for small, large in rows:
        assert large['macs'] > 3 * small['macs'] and large['hw'] == [64, 64]

    def measured(cfg, size, place):
        if cfg.model.backbone.pos_encoding and size == (64, 64):
            raise RuntimeError('no memory')
        return dict(seconds=0.25, peak_bytes=None)
    monkeypatch.setattr(costs, 'time_passes', measured)
    costs.measure_missing_costs(copied, timed=True)
    assert 'peg at 2x is not timed: RuntimeError: no memory' in capsys.readouterr().err
    monkeypatch.setattr(costs, 'time_passes', None)
    monkeypatch.setattr(costs, 'input_size', None)  # which may read the whole test set
    costs.measure_missing_costs(copied, timed=True)  # nothing is missing
    assert 'timing' not in capsys.readouterr().out
    timed = [each['costs'] for each in collect_results(copied).encodings]
    assert [[at['seconds'] for at in own] for own in timed] == [[.25, .25], [.25, None]]
    assert [[at['macs'] for at in own] for own in timed] == [
        [at['macs'] for at in own] for own in rows]
    write_results_and_report(copied)
    assert '>Seconds an image</th>' in (copied.folder / 'report.html').read_text()


def test_a_pass_is_timed(copied):
    row = costs.measure_costs(copied.base, copied.entries[0], 1.0, (32, 32), timed=True)
    assert 0 < row['seconds'] < 60 and row['peak_bytes'] is None


def test_a_run_that_is_taken_is_left_alone(tmp_path):
    run, = tiny_study(tmp_path, names=['none']).runs()
    lock = WorkDirLock(run.folder)
    assert is_taken(run)
    assert runs.main([str(run.folder)]) == TAKEN
    lock.release()
    assert not is_taken(run)


@pytest.mark.slow
def test_killing_the_command_ends_its_runs_and_the_next_one_goes_on(tmp_path, monkeypatch):
    """Two at once, one of them an encoding in a file of the user's, each in its own process."""
    monkeypatch.chdir(tmp_path)
    Path('own.py').write_text(OWN)
    study = tiny_study(tmp_path, names=['none', 'own.py:Mine'], epochs=30)
    command = os.fork()
    if command == 0:
        try:
            carry_out_all(study, LocalWorkers(2), print)
        finally:
            os._exit(1)
    end = time.monotonic() + 240
    while not all(read_record(run)['share'] and is_taken(run) for run in study.runs()):
        assert time.monotonic() < end
        time.sleep(0.05)
    os.kill(command, signal.SIGKILL)
    os.waitpid(command, 0)
    while any(is_taken(run) for run in study.runs()):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert [record['status'] for record in all_of(study)] == ['finished'] * 2
    other = in_another_folder(study, 'other')
    all_of(other)
    assert_same(study, other)
