"""The command, with runs in this process or with runs that do nothing."""
import csv
import errno
import json
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from helpers.tiny_studies import OWN, Here, tiny_study
from helpers.tiny_tasks import classifier_config

from mmposenc.commands import compare
from mmposenc.engine.config.config import load_config
from mmposenc.engine.training.lock import WorkDirLock
from mmposenc.lab.compare.page import report, results
from mmposenc.lab.compare.page.results import write_best_config
from mmposenc.lab.compare.running import progress, recording, workers
from mmposenc.lab.compare.study.study import check_replaces_no_files, planning_lock, read_study


@pytest.fixture
def here(monkeypatch, tmp_path):
    idle = Here(idle=True)
    monkeypatch.setattr(workers, 'workers_from_arguments', lambda args: idle)
    monkeypatch.chdir(tmp_path)
    classifier_config(tmp_path)
    return idle


def call(*words, status=0):
    quick = ['--cfg-options', 'train_cfg.max_epochs=1']
    with pytest.raises(SystemExit) as ended:
        compare.main([*words, *(quick if 'cls.py' in words else [])])
    assert ended.value.code == status or status is None, ended.value.code
    return ended.value.code


ASKED = ('cls.py', '--encodings', 'none', 'peg', '--out', 'out')


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
    first, = results.collect_results(read_study(Path('out'))).runs
    call(*ASKED, '--seeds', '1', '--sizes', '32X64', '2')
    assert sorted(here.started[1:]) == [('none', 0), ('peg', 0)]
    told = results.collect_results(read_study(Path('out')))
    assert ['peg' in line.split() for line in told.command.splitlines()] == [False, True]
    held = told.runs
    assert [[test['factor'] for test in run['tests']] for run in held] == [
        [1, 2, '32x64']] * 2
    row = list(csv.DictReader(Path('out/results.csv').open()))[-1]
    assert (row['factor'], row['height'], row['width']) == ('32x64', '32', '64')
    page = Path('out/report.html').read_text()
    assert [text for text in ('>32×64<', 'differences, at 32 × 64', 'At 32×64: ')
            if text not in page] == []
    # Sizes that are added train nothing.
    assert held[0]['train_seconds'] == first['train_seconds']


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


def test_other_settings_are_refused(here):
    call(*ASKED, '--seeds', '1', status=1)
    for words, message in (
            (['train_cfg.max_epochs=3'],
             'train_cfg.max_epochs of the config is another: 1 there, 3 now'),
            (['train_cfg.max_epochs=1', 'train_dataloader.batch_size=1'],
             'train_dataloader.batch_size of the config is another: 2 there, 1 now')):
        with pytest.raises(SystemExit, match=f'--out out holds a study .* {message}'):
            compare.main([*ASKED, '--cfg-options', *words])
    assert len(here.started) == 2


RAN = "open('RAN', 'w')"
BREAKS = f'a\n\r\u2028\x0c"""\';{RAN}\n{RAN}#.py'
RUN, OLD = 'runs/none/seed0/run.json', 'is damaged or of another version'
#: Values for a JSON file, or text and what it replaces in config.py; and what is said.
FOREIGN = [
    ('study.json', dict(config=BREAKS, command=BREAKS, created=BREAKS), ''),
    ('config.py', (f'# coding: utf-7\n# +AAo-{RAN}\n', ''), ''),
    ('study.json', dict(label=BREAKS), "the encoding 'none' is another"),
    ('study.json', dict(changes={'pos_encoding': {'type': 'own.py:Mine'}}), 'is another'),
    ('study.json', dict(changes={'cfg': {'custom_hooks': [{'type': 'os.system'}]}}), 'is another'),
    ('study.json', dict(name='own.py:Mine'), "has 'own.py:Mine' too, which a file of yours says"),
    ('study.json', dict(name='paper::own.yaml'), "has 'paper::own.yaml' too"),
    ('config.py', (f'{RAN}\n', ''), 'of the config is another'),
    ('config.py', (f'model = {RAN}\n', ''), 'model of the config is another'),
    ('config.py', (f'dict(a={RAN}, ', 'dict('), 'of the config is another'),
    ('config.py', (f'dict(**{RAN}, ', 'dict('), 'of the config'),
    ('config.py', ('(' * 5000, ''), 'config.py is damaged .it is no Python'),
    ('study.json', dict(schema=2), f'{OLD} .study.schema=2 must be 1, as in this version'),
    ('study.json', dict(sizes=['24x']), "study.sizes.0='24x' must be a factor above 0, or 'HEIG"),
    ('study.json', dict(seeds=[2 ** 32]), 'study.seeds.0=4294967296 must be a seed'),
    ('study.json', '[' * 10 ** 5, f'study.json {OLD} .maximum recursion'),
    (RUN, dict(checkpoint='../../a.pth'), "run.checkpoint='../../a.pth' must be a path in the st"),
    (RUN, dict(tests=[{'factor': 1}]), 'run.tests.0.value=None must be a number'),
    (RUN, dict(status=[]), 'run.status=.. must be the status of a run'),
    ('costs.json', dict(none=[{'factor': 1, 'hw': [1]}]), 'costs.none.0.hw=.1. must be a height'),
    ('costs.json', '[3]', 'costs=.3. must be an object')]


def test_nothing_runs_in_a_study_of_somebody_else(here):
    Path('own.py').write_text(f'{RAN}\n{OWN}')
    asked = ['cls.py', '--encodings', 'none', *ASKED[4:], '--seeds', '1']
    call(*asked, status=1)
    honest = Path('out').rename('honest')
    for file, change, said in FOREIGN:
        shutil.copytree(honest, 'out')
        text = (path := Path('out', file)).read_text()
        if isinstance(change, dict):
            content = json.loads(text)
            first = content.get('entries', [{}])[0]
            (first if {*change} & {*first} else content).update(change)
            change = json.dumps(content)
        elif isinstance(change, tuple):
            change = text.replace(change[1], change[0], 1)
        path.write_text(change)
        told = call(*asked, *['--dry-run'] * (file[0] in 'cs' and 'costs' not in file), status=None)
        assert re.search(said, str(told)) and not Path('RAN').exists(), (file, said, told)
        if not said:
            call(*asked, status=None)
            write_best_config(read_study(Path('out')), 'none')
            assert load_config('out/best.py').model and not Path('RAN').exists()
        shutil.rmtree('out')


def test_own_classes_are_named_again(here):
    Path('own.py').write_text(OWN)
    call(*ASKED[:2], 'own.py:Mine', *ASKED[4:], '--seeds', '1', status=1)
    with pytest.raises(SystemExit, match='name that file as in the calls before'):
        compare.main([*ASKED, '--cfg-options', 'train_cfg.max_epochs=1'])
    call(*ASKED[:4], 'own.py:Mine', *ASKED[4:], '--seeds', '1', status=1)
    call(*ASKED[:2], 'own.py:Mine', *ASKED[4:], '--seeds', '1', status=1)  # Others are known.
    assert {name for name, _ in here.started[-3:]} == {'own.py:Mine', 'none', 'peg'}


def test_a_dry_run_lists_the_runs_and_writes_nothing(here, capsys):
    call(*ASKED, '--seeds', '2', '--sizes', '2', '--dry-run')
    told = capsys.readouterr().out
    assert '4 runs of 1 epoch each: seeds 0, 1; sizes 1, 2' in told
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
    Path('long.yaml').write_text('{name: long, pos_encoding: peg, cfg: {train_cfg.max_epochs: 9}}')
    said = call('cls.py', '--encodings', 'none', 'long.yaml', '--out', 'out', status=None)
    assert "encoding 'long' sets the length of its training" in said
    assert here.started == []


def test_runs_get_a_gpu_and_cores_of_their_own(monkeypatch, tmp_path):
    monkeypatch.delenv('OMP_NUM_THREADS', raising=False)
    monkeypatch.setattr(workers, 'num_usable_cores', lambda: 8)
    with pytest.raises(ValueError, match='--jobs 3 needs 3 GPUs; there are 2'):
        workers.LocalWorkers(3, ['0', '3'])
    over, variables_of = set(), {}

    def started(folder, **variables):
        variables_of[folder.name] = variables
        return Mock(poll=lambda: 0 if folder.name in over else None, wait=lambda: 7)
    monkeypatch.setattr(workers, 'start_run_process', started)
    made = workers.LocalWorkers(2, ['0', '3', '5'])
    first, second = made.start([SimpleNamespace(folder=tmp_path / name) for name in 'ab'])
    over.add('b')
    assert (first.done(), second.done(), second.result()) == (False, True, 7)
    made.start([SimpleNamespace(folder=tmp_path / 'c')])
    assert [each['CUDA_VISIBLE_DEVICES'] for each in variables_of.values()] == ['0', '3', '3']
    assert {each['OMP_NUM_THREADS'] for each in variables_of.values()} == {'4'}
    monkeypatch.setenv('OMP_NUM_THREADS', '1')
    workers.LocalWorkers(1).start([SimpleNamespace(folder=tmp_path / 'd')])
    assert variables_of['d'] == {}


def test_the_time_that_is_left(tmp_path):
    study = tiny_study(tmp_path, seeds=(0, 1, 2))
    done, running, failed, diverged, half, _ = study.runs()
    training = {'status': 'running', 'share': 0.25, 'train_seconds': 25.0}
    for run, changes in (
            (done, {'status': 'finished', 'share': 1.0, 'train_seconds': 100.0,
                    'tests': [{'factor': 1.0, 'value': 97.5}]}),
            (running, training), (half, training), (failed, {'status': 'failed'}),
            (diverged, {'status': 'diverged'})):
        recording.write_record(run, recording.read_record(run), **changes)
    records = [recording.read_record(run) for run in study.runs()]
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
    shown = capsys.readouterr().out
    assert '│ no encoding │ 45.2 (42.7 to 47.7) * │ 3 ' in shown
    assert shown.splitlines()[-2] == (
        'The model without an encoding has the highest top-1 accuracy at the trained size, 45.2 % '
        '(mean of 3 seeds). Can still be best: no encoding and PEG. More seeds may tell.')


def test_a_study_remembers_what_was_asked(tmp_path):
    study = tiny_study(tmp_path, names=['peg+irpe-k', 'none'], seeds=(3, 1), sizes=(0.5, 1.0))
    assert read_study(study.folder) == study


def test_what_a_call_leaves_that_ended_early_is_no_obstacle(tmp_path):
    study = replace(tiny_study(tmp_path / 'other'), folder=tmp_path)
    (tmp_path / 'mine.txt').write_text('of no interest')
    (tmp_path / 'submitit').mkdir()  # of a call whose --submitit was refused
    (tmp_path / 'config.py').write_text(study.base.cfg.pretty_text)  # of a call that was killed
    check_replaces_no_files(study)


def test_a_folder_that_is_no_study_is_left_as_it_is(here):
    mine = Path('cls.py').rename('config.py')
    text = mine.read_text()
    for name in ('results.csv', 'report.html', 'best.py', 'costs.json', 'runs'):
        Path(name).symlink_to('nowhere')
    with pytest.raises(SystemExit, match='--out . holds no study .study.json., but config.py, '
                                         'report.html, results.csv, best.py, costs.json, runs, wh'):
        compare.main(['config.py', '--encodings', 'none', 'peg', '--out', '.'])
    assert mine.read_text() == text and not Path('planning').exists()


def test_a_second_command_says_that_it_waits_for_the_first(tmp_path, monkeypatch):
    first = WorkDirLock(tmp_path / 'planning')
    said = []
    monkeypatch.setattr('mmposenc.lab.compare.study.study.print', lambda text, **_: (
        said.append(text), first.release()), raising=False)
    with planning_lock(tmp_path):
        assert f'another command has the study in {tmp_path} in hand' in said[0]
