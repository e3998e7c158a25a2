"""The command, with runs in this process or with runs that do nothing."""
import csv
import errno
import io
import json
import logging
import re
import signal
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.tiny_studies import Here, tiny_study
from helpers.tiny_tasks import classifier_config
from rich.console import Console

from mmposenc.commands import compare, train
from mmposenc.engine.training.lock import WorkDirLock
from mmposenc.lab.compare.page import report, results
from mmposenc.lab.compare.running import planning, progress, runs, schedule, workers
from mmposenc.lab.compare.study import files
from mmposenc.lab.compare.study.files import write_json
from mmposenc.lab.compare.study.metrics import Metric
from mmposenc.lab.compare.study.study import check_replaces_no_files, planning_lock, read_study
from mmposenc.terminal import streams

METRIC = Metric('accuracy/top1', 'top-1 accuracy', '%')


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


ASKED = ('cls.py', '--encodings', 'none', 'peg', '--out', 'out', '--pictures', '0', '--no-figures')


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
        'report.html', 'results.csv', 'best.py', 'study.json', 'config.py'}
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
    before, write = signal.getsignal(signal.SIGTERM), files.write_text

    def full(path, text, **options):
        if path.name in ('report.html', 'progress.json'):
            raise OSError(errno.ENOSPC, 'No space left on device', str(path))
        write(path, text, **options)
    with monkeypatch.context() as patched:
        patched.setattr(report, 'write_text', full)
        patched.setattr(files, 'write_text', full)
        assert call(*asked, status=None).splitlines()[0] == (
            'error: out/report.html: No space left on device')
    told = capsys.readouterr().out
    assert told.count('the report could not be written yet: out/report.html: No space left') == 3
    assert len(here.started) == 3 and Path('out/results.csv').is_file()
    call(*asked, status=1)
    assert signal.getsignal(signal.SIGTERM) == before and Path('out/report.html').is_file()
    shown = re.sub(r'\s*│[^│]*│[^│]*│\n│ ', '', capsys.readouterr().out)  # folded lines
    assert all(label in shown for label in LABELS)
    rows = list(csv.DictReader(Path('out/results.csv').open()))
    assert [row['label'] for row in rows] == list(LABELS)


def test_nothing_else_writes_into_a_study(finished, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    kept = finished.runs()[0].folder / 'train'
    before = sorted(kept.rglob('*'))
    config, = kept.glob('*.py')
    for words in (), ('--work-dir', str(kept.parent / 'more')):
        with pytest.raises(SystemExit, match='of the study in .*/study, .*another --work-dir'):
            train.main([str(config), *words])
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
    with open('cls.py', 'a') as config:
        config.write("model['backbone'] = dict(type='mmposenc.CPResNet', depth=20)\n"
                     "model['head']['in_channels'] = 64\n")
    asked = ['cls.py', '--encodings', 'none', 'peg', 'contextpool', 'irpe-k', 'peg+shaw']
    said = call(*asked, '--out', 'out', status=None)
    assert '3 of 5 do not fit' in said and 'none contextpool would do' in said
    assert 'peg, irpe-k, peg+shaw: does not fit mmposenc.CPResNet' in capsys.readouterr().err
    assert here.started == []


def test_runs_get_gpus_and_cores_of_their_own(monkeypatch):
    monkeypatch.delenv('OMP_NUM_THREADS', raising=False)
    monkeypatch.setattr(workers, 'num_usable_cores', lambda: 8)
    made = workers.LocalWorkers(2, ['0', '3', '5', '7'], 2)
    assert [made.environment(slot) for slot in range(2)] == [
        {'CUDA_VISIBLE_DEVICES': '0,3', 'OMP_NUM_THREADS': '4'},
        {'CUDA_VISIBLE_DEVICES': '5,7', 'OMP_NUM_THREADS': '4'}]
    with pytest.raises(ValueError, match='--jobs 2 with --gpus-per-run 3 needs 6 GPUs; there are '):
        workers.LocalWorkers(2, ['0', '3', '5', '7'], 3)
    with pytest.raises(ValueError, match='--gpus-per-run 2: there is no GPU here'):
        workers.LocalWorkers(1, [], 2)
    # A run that is over leaves its slot to the next one.
    over, given = SimpleNamespace(poll=lambda: 0), []
    going = SimpleNamespace(poll=lambda: None)
    processes = iter([going, over, going])
    monkeypatch.setattr(workers, 'start_run_process', lambda folder, gpus, environment: (
        given.append(environment['CUDA_VISIBLE_DEVICES']), next(processes))[1])
    for _ in range(3):
        made.start([SimpleNamespace(folder=None)])
    assert given == ['0,3', '5,7', '5,7']


def test_the_table_says_how_runs_stand(tmp_path):
    study = tiny_study(tmp_path, seeds=(0, 1, 2))
    done, running, failed, diverged, half, new = study.runs()
    tests = {'tests': [{'factor': 1.0, 'value': 97.5}]}
    for run, changes in ((done, {'status': 'finished', 'seconds': 100.0, **tests}),
                         (failed, {'status': 'failed', 'note': 'no room'}),
                         (diverged, {'status': 'diverged'}), (half, {'status': 'running'})):
        write_json(run.record_file, {**runs.new_record(run), **changes})
    told = {'phase': 'train', 'done': 50, 'total': 200, 'epoch': 3, 'epochs': 10, 'loss': 0.25,
            'metric': 95.0, 'seconds': 25.0}
    for run in (running, half):
        write_json(run.progress_file, told)
    states = progress.run_states(study)
    states[1] = states[1]._replace(taken=True)
    cells = [progress.cell_text(state, METRIC) for state in states]
    for cell, part in zip(cells, ('97.5', '3/10', 'failed', 'diverged', '25%', ''), strict=True):
        assert part in cell
    late = states[1]._replace(progress={**told, 'time': time.time() - 1200})
    assert 'no word for 20 min' in progress.cell_text(late, METRIC)
    # All runs take about 100 s; 75 are left of two, 100 of one; what failed is left out.
    assert progress.seconds_left(states, 2) == 125


def test_the_table_shows_what_is_on_the_disk(tmp_path):
    study = tiny_study(tmp_path, seeds=(0, 1))
    first, second, *_ = study.runs()
    screen = io.StringIO()
    console = Console(file=screen, width=100, force_terminal=True)
    with progress.ProgressDisplay(study, 1, console) as display:
        finished = {'status': 'finished', 'tests': [{'factor': 1.0, 'value': 43.21}]}
        write_json(first.record_file, {**runs.new_record(first), **finished})
        display.tick(at_once=True)
        write_json(second.record_file, {**runs.new_record(second), 'status': 'failed'})
        display.print_event(second, 'ended')
    assert '43.2' in screen.getvalue() and 'failed' in screen.getvalue()


def test_the_console_without_a_table(tmp_path, capsys):
    """In silence it says how many runs are over, and at the end what is sure."""
    study = tiny_study(tmp_path, names=['none', 'peg'], seeds=(0, 1, 2))
    display = progress.ProgressDisplay(study, 1, Console(file=io.StringIO()))
    for count, run in enumerate(study.runs()):
        display.print_event(run, 'started')
        assert streams._activity.startswith(f'{count} of 6 runs over')
        value = {'factor': 1.0, 'value': 43.0 + (run.entry.name == 'none') + run.seed,
                 'by_class': {}, 'by_size': {}}
        write_json(run.record_file, {**runs.new_record(run), 'status': 'finished',
                                     'tests': [value]})
    assert compare.print_and_write_results(study) == 0
    assert capsys.readouterr().out.splitlines()[-2] == (
        'The model without an encoding has the highest top-1 accuracy at the trained size, 45.0 % '
        '(mean of 3 seeds). Can still be best: no encoding and PEG. More seeds may tell.')


@pytest.mark.parametrize('before, exit_status, after, note', [
    ('running', -15, 'failed', 'killed by SIGTERM'),
    ('waiting', -9, 'failed', 'killed by SIGKILL (the system kills so where memory runs out)'),
    ('running', 1, 'failed', 'ended with status 1: two'),
    ('finished', -15, 'finished', 'killed by SIGTERM, its results are kept')])
def test_a_crash_is_noted_and_its_log_is_shown(tmp_path, before, exit_status, after, note):
    study = tiny_study(tmp_path, names=['none'])
    run, = study.runs()
    write_json(run.record_file, {**runs.new_record(run), 'status': before})
    (run.folder / 'log.txt').write_text('one\ntwo\n')
    schedule._record_crash(run, exit_status)
    kept, = results.collect_results(study)['runs']
    assert (kept['status'], kept['note']) == (after, f'{note}; see {run.folder / "log.txt"}')
    assert kept['log'] == (['one', 'two'] if after == 'failed' else [])


def test_a_study_remembers_what_was_asked(tmp_path):
    study = tiny_study(tmp_path, names=['peg+irpe-k', 'none'], seeds=(3, 1), sizes=(0.5, 1.0),
                       pictures=3, extras=('figures',))
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
