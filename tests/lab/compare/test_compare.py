"""The command, with runs in this process or with runs that do nothing."""
import csv
import errno
import json
import logging
import re
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from helpers.tiny_studies import Here, tiny_study
from helpers.tiny_tasks import classifier_config

from mmposenc.commands import compare, train
from mmposenc.engine.training.lock import WorkDirLock
from mmposenc.lab.compare.page import report, results
from mmposenc.lab.compare.running import planning, progress, recording, schedule, workers
from mmposenc.lab.compare.study.study import check_replaces_no_files, planning_lock, read_study


@pytest.fixture
def here(monkeypatch, tmp_path):
    workers = Here(idle=True)
    monkeypatch.setattr(planning, 'workers_from_arguments', lambda args: workers)
    monkeypatch.chdir(tmp_path)
    classifier_config(tmp_path)
    return workers


def call(*words, status=0):
    quick = ['--cfg-options', 'train_cfg.max_epochs=1']
    with pytest.raises(SystemExit) as ended:
        compare.main([*words, *(quick if 'cls.py' in words else [])])
    assert ended.value.code == status or status is None, ended.value.code
    return ended.value.code


ASKED = ('cls.py', '--encodings', 'none', 'peg', '--out', 'out', '--no-time')


def test_a_study_is_made_grows_and_is_not_repeated(here, capsys):
    here.idle = False
    asked = [word for word in ASKED if word != 'peg']
    call(*asked, '--seeds', '1')
    assert here.started == [('none', 0)]
    shown = capsys.readouterr().out
    assert 'none seed 0: finished, top-1 accuracy' in shown and '│ no encoding ' in shown
    row, = csv.DictReader(Path('out/results.csv').open())
    assert (row['encoding'], row['label']) == ('none', 'no encoding')
    assert {path.name for path in Path('out').iterdir() if path.is_file()} == {
        'report.html', 'results.csv', 'best.py', 'study.json', 'config.py', 'costs.json'}
    call(*asked, '--seeds', '1')
    assert len(here.started) == 1
    first, = results.collect_results(read_study(Path('out')))['runs']
    call(*ASKED, '--seeds', '1', '--sizes', '2')
    assert sorted(here.started[1:]) == [('none', 0), ('peg', 0)]
    told = results.collect_results(read_study(Path('out')))
    assert ['peg' in line.split() for line in told['command'].splitlines()] == [False, True]
    held = told['runs']
    assert [[test['factor'] for test in run['tests']] for run in held] == [[1, 2]] * 2
    # Sizes that are added train nothing.
    assert held[0]['train_seconds'] == first['train_seconds']
    call('--out', 'out', '--report-only')
    assert len(here.started) == 3


LABELS = ('[/x]', 'PEG [stage 1] :x:', 'one_word_that_is_longer_than_its_column_' * 3)


def test_labels_are_shown_as_they_are_and_a_report_that_can_not_be_written_ends_no_study(
        here, monkeypatch, capsys):
    """As on a full disk: what is finished stays, and the next call writes it."""
    Path('e.yaml').write_text(json.dumps(
        [{'name': f'e{i}', 'label': label} for i, label in enumerate(LABELS)]))
    asked = ['cls.py', '--encodings', 'e.yaml', *ASKED[4:], '--seeds', '1']
    before = signal.getsignal(signal.SIGTERM)

    def full(path, text, **options):
        raise OSError(errno.ENOSPC, 'No space left on device', str(path))
    with monkeypatch.context() as patched:
        patched.setattr(report, 'write_text', full)
        assert call(*asked, status=None).splitlines()[0] == (
            'error: out/results.csv: No space left on device')
    told = capsys.readouterr().out
    assert told.count('the report could not be written yet: out/results.csv: No space left') == 3
    assert len(here.started) == 3
    call(*asked, status=1)
    assert signal.getsignal(signal.SIGTERM) == before and Path('out/report.html').is_file()
    shown = re.sub(r'\s*│[^│]*│[^│]*│\n│ ', '', capsys.readouterr().out)  # folded lines
    assert all(label in shown for label in LABELS)
    rows = list(csv.DictReader(Path('out/results.csv').open()))
    assert [row['label'] for row in rows] == list(LABELS)


def test_no_training_replaces_that_of_a_study(finished, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    kept = finished.runs()[0].folder / 'train'
    before = sorted(kept.rglob('*'))
    config, = kept.glob('*.py')
    with pytest.raises(SystemExit, match='has checkpoints of a training .*, another --work-dir'):
        train.main([str(config)])
    assert sorted(kept.rglob('*')) == before
    train.main([str(config), '--work-dir', 'elsewhere', '--cfg-options', 'train_cfg.max_epochs=1'])
    assert Path('elsewhere/epoch_1.pth').is_file()


def test_other_settings_are_refused(here):
    call(*ASKED, '--seeds', '1', status=1)
    planned = ['--cfg-options', 'train_cfg.max_epochs=1']
    for words, message in (
            (['--epochs', '3', *planned], "length is another: '1 epoch' there, '3 epochs' now"),
            ([*planned, 'train_dataloader.batch_size=1'],
             'train_dataloader.batch_size of the config is another: 2 there, 1 now')):
        with pytest.raises(SystemExit, match=f'--out out holds a study .* {message}'):
            compare.main([*ASKED, *words])
    assert len(here.started) == 2


def test_a_dry_run_lists_the_runs_and_writes_nothing(here, capsys):
    call(*ASKED, '--seeds', '2', '--sizes', '2', '--epochs', '10', '--dry-run')
    told = capsys.readouterr().out
    assert '4 runs of 10 epochs each: seeds 0, 1; sizes 1, 2' in told
    assert 'no difference can be told: that takes two encodings of 3 seeds' in told
    assert re.search(r'peg +[0-9,]+ +[0-9.]+ +[0-9.]+\n', told)  # parameters, MACs at both sizes
    assert here.started == [] and not Path('out').exists()


def test_all_that_does_not_fit_is_told_at_once(here, capsys):
    said = call('mmdet::retinanet/retinanet_r50_fpn_1x_coco.py', '--encodings', 'none', status=None)
    assert "its backbone is 'ResNet'" in said  # before its data are missed
    Path('e.yaml').write_text(json.dumps([
        {'name': name, 'pos_encoding': {'type': 'mmposenc.PEG', 'kernel_size': size}}
        for name, size in (('even', 2), ('odd', 3), ('none_at_all', 0))]))
    said = call('cls.py', '--encodings', 'none', 'e.yaml', '--out', 'out', status=None)
    assert '2 of 4 do not fit' in said and 'none odd would do' in said
    told = capsys.readouterr().err
    assert 'even: does not fit mmposenc.PVT: ' in told and 'none_at_all: does not fit' in told
    assert here.started == []


def test_runs_get_a_gpu_and_cores_of_their_own(monkeypatch, tmp_path):
    monkeypatch.delenv('OMP_NUM_THREADS', raising=False)
    monkeypatch.setattr(workers, 'num_usable_cores', lambda: 8)
    with pytest.raises(ValueError, match='--jobs 3 needs 3 GPUs; there are 2'):
        workers.LocalWorkers(3, ['0', '3'])
    given = []

    def started(folder, **variables):
        given.append((folder.name, variables))
        if folder.name == 'broken':
            raise OSError('no such folder')
        return Mock(wait=lambda: len(folder.name), poll=lambda: 0)
    monkeypatch.setattr(workers, 'start_run_process', started)
    made = workers.LocalWorkers(2, ['0', '3', '5'])
    jobs = made.start([SimpleNamespace(folder=tmp_path / name) for name in (
        'broken', 'a', 'broken', 'bb', 'ccc')])
    assert [schedule._exit_status(job) for job in jobs] == [1, 1, 1, 2, 3]
    made.stop()
    assert [name for name, _ in given] == ['broken', 'a', 'broken', 'bb', 'ccc']
    assert {each['CUDA_VISIBLE_DEVICES'] for _, each in given} <= {'0', '3'}
    assert {each['OMP_NUM_THREADS'] for _, each in given} == {'4'}


def test_the_table_says_how_runs_stand(tmp_path):
    study = tiny_study(tmp_path, seeds=(0, 1, 2))
    done, running, failed, diverged, half, new = study.runs()
    training = {'status': 'running', 'share': 0.25, 'train_seconds': 25.0}
    for run, changes in (
            (done, {'status': 'finished', 'share': 1.0, 'train_seconds': 100.0,
                    'tests': [{'factor': 1.0, 'value': 97.5}]}),
            (running, training), (half, training), (failed, {'status': 'failed'}),
            (diverged, {'status': 'diverged'})):
        recording.write_record(run, recording.read_record(run), **changes)
    records = [recording.read_record(run) for run in study.runs()]
    assert [progress.cell_text(study, record) for record in records] == [
        '97.5', '25%', 'failed', 'diverged', '25%', '0%']
    # All runs take 100 s; 75 are left of two, 100 of one; what failed is left out.
    assert progress.seconds_left(study, records, 2) == 125
    assert progress.progress_summary(study, 2) == '2 of 6 runs over, 1 failed; about 125 s left'


def test_the_console(tmp_path, capsys):
    study = tiny_study(tmp_path, names=['none', 'peg'], seeds=(0, 1, 2))
    display = progress.ProgressLines(study, 1)
    for run in study.runs():
        value = {'factor': 1.0, 'value': 43.21 + (run.entry.name == 'none') + run.seed}
        recording.write_record(run, recording.read_record(run), status='finished', tests=[value])
        display.show(run)
        display.show()
    display.printed -= 61  # a line a minute
    display.show()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == 'none seed 0: finished, top-1 accuracy 44.2 (1 of 6 runs over)'
    assert len(lines) == 7 and lines[6] == '6 of 6 runs over'
    assert compare.print_and_write_results(study) == 0
    assert capsys.readouterr().out.splitlines()[-2] == (
        'The model without an encoding has the highest top-1 accuracy at the trained size, 45.2 % '
        '(mean of 3 seeds). Can still be best: no encoding and PEG. More seeds may tell.')


def test_a_study_remembers_what_was_asked(tmp_path):
    study = tiny_study(tmp_path, names=['peg+irpe-k', 'none'], seeds=(3, 1), sizes=(0.5, 1.0),
                       timed=False)
    assert read_study(study.folder) == study


@pytest.mark.parametrize('name', ['config.py', 'results.csv', 'report.html', 'best.py', 'runs'])
def test_a_folder_that_is_no_study_is_left_as_it_is(tmp_path, name):
    cfg = tiny_study(tmp_path / 'other').base.cfg
    (tmp_path / 'mine.txt').write_text('of no interest')
    (tmp_path / 'submitit').mkdir()  # of a call whose --submitit was refused
    check_replaces_no_files(tmp_path, cfg)
    (tmp_path / 'config.py').write_text(cfg.pretty_text)  # of a call that was killed
    check_replaces_no_files(tmp_path, cfg)
    (tmp_path / 'config.py').unlink()
    (tmp_path / name).write_text('mine')
    with pytest.raises(ValueError, match=f'holds no study .study.json., but {name}, which a study'):
        check_replaces_no_files(tmp_path, cfg)
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to('nowhere')
    with pytest.raises(ValueError, match=name):
        check_replaces_no_files(tmp_path, cfg)


@pytest.mark.parametrize('options', [(), ('--dry-run',)])
def test_compare_does_not_replace_the_users_files(here, options):
    mine = Path('cls.py').rename('config.py')
    text = mine.read_text()
    with pytest.raises(SystemExit, match='--out . holds no study .study.json., but config.py'):
        compare.main(['config.py', '--encodings', 'none', 'peg', '--out', '.', *options])
    assert mine.read_text() == text and not Path('planning').exists()


def test_a_second_command_says_that_it_waits_for_the_first(tmp_path, monkeypatch, capsys):
    first = WorkDirLock(tmp_path / 'planning')
    monkeypatch.setattr('mmposenc.lab.compare.study.study.time',
                        SimpleNamespace(sleep=lambda seconds: first.release()))
    with planning_lock(tmp_path):
        assert f'another command has the study in {tmp_path} in hand' in capsys.readouterr().err


@pytest.mark.skipif(find_spec('submitit') is None, reason='submitit is not installed')
def test_submitit_leaves_the_log_files_of_this_process_open(tmp_path, monkeypatch):
    monkeypatch.delenv('SUBMITIT_LOG_LEVEL', raising=False)
    for name in [name for name in sys.modules if name.partition('.')[0] == 'submitit']:
        monkeypatch.delitem(sys.modules, name)
    log = logging.FileHandler(tmp_path / 'log')
    workers.SubmittedWorkers(tmp_path / 'jobs', 'local', {'timeout_min': 5})
    assert log.stream is not None
    log.close()
    with pytest.raises(ValueError, match='--submitit local'):
        workers.SubmittedWorkers(tmp_path / 'jobs', 'local', {'no_such_option': 1})
