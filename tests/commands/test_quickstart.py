"""`mmposenc quickstart`: what it asks of the other commands, and how it stops and goes on."""
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from helpers.scripts import ROOT

from mmposenc.commands import prepare, quickstart


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """The commands that are run: a training leaves a checkpoint, and no command does more."""
    done = []

    def run(command, config, *words):
        done.append((command, config.split('/')[-1].removesuffix('.py'),
                     *(word for word in words if not word.startswith('--'))))
        if command == 'train':
            work = tmp_path / words[words.index('--work-dir') + 1]
            work.mkdir(parents=True)
            (work / 'last_checkpoint').write_text('elsewhere/epoch_12.pth')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(quickstart, 'run', run)
    monkeypatch.setattr(prepare, 'main', lambda words: done.append(('prepare', *words)))
    monkeypatch.setattr(quickstart, 'metrics_table', lambda rows: '\n'.join(
        f'{name}: {folder.name}' for name, folder in rows.items()))
    return done


def test_detection_is_trained_once_and_tested_twice(asked, capsys):
    work, small = 'work_dirs/quickstart-seed1', 'retinanet_pvt-micro-peg_fpn_1xb4-12e_trees'
    tests = [('test', f'{small}-block', f'{work}/epoch_12.pth', f'{work}/test_block',
              f'{work}/pictures/block'),
             ('test', small, f'{work}/epoch_12.pth', f'{work}/test_other_plot',
              f'{work}/pictures/other_plot')]
    quickstart.main(['--seed', '1'])
    assert asked == [('prepare', 'trees'), ('train', f'{small}-quick', work, 'randomness.seed=1'),
                     *tests]
    assert capsys.readouterr().out.endswith(
        'held-out block of the training plots: test_block\na different plot: test_other_plot\n'
        f'pictures: {work}/pictures (left: ground truth, right: predictions)\n')
    asked.clear()
    quickstart.main(['--seed', '1'])
    assert asked == [('prepare', 'trees'), *tests]
    assert 'already trained' in capsys.readouterr().out


@pytest.mark.parametrize('words, prepared, trained, tested', [
    (['segmentation'], ['nuclei'], ['quickstart'], ['strip']),
    (['pretrained', '--out', 'mine'], ['trees', 'nuclei', 'pretrained'],
     ['trees', 'nuclei'], ['block', 'other_plot', 'strip'])])
def test_other_tasks(asked, words, prepared, trained, tested):
    quickstart.main(words)
    assert [each[1] for each in asked if each[0] == 'prepare'] == prepared
    trainings = [each for each in asked if each[0] == 'train']
    assert [each[-1].split('/')[-1].split('-')[0] for each in trainings] == trained
    tests = [each for each in asked if each[0] == 'test']
    folders = [word.split('/test_')[1] for each in tests for word in each if '/test_' in word]
    assert folders == tested


def test_the_table_has_the_newest_test_of_each_row(tmp_path):
    def write(folder, metrics):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / f'{folder.split("/")[1]}.json').write_text(json.dumps(metrics))
    coco = {'coco/bbox_mAP': 0.25, 'coco/bbox_mAP_50': 0.5, 'coco/bbox_mAP_75': 0.0}
    write('a/20260101_120000', {**coco, 'coco/bbox_mAP': 0.125})
    write('a/20260101_130000', coco)
    (tmp_path / 'a' / '20260101_140000').mkdir()  # a test that was stopped
    write('b/1', {})  # a detector that found nothing
    assert quickstart.metrics_table({'first': tmp_path / 'a', 'b': tmp_path / 'b'}) == (
        '           AP    AP50    AP75\n'
        'first   0.250   0.500   0.000\n'
        'b           -       -       -')
    write('c/1', {'aAcc': 97.5, 'mIoU': 91.234, 'mAcc': 95.0})
    assert quickstart.metrics_table({'strip': tmp_path / 'c'}) == (
        '         mIoU    mAcc    aAcc\nstrip   91.23   95.00   97.50')


@pytest.mark.parametrize('words, message', [
    (['segment'], "invalid choice: 'segment'"), (['--help'], '')])
def test_wrong_words_and_help_come_before_the_set_up(words, message, tmp_path):
    run = subprocess.run(['bash', str(ROOT / 'tools' / 'quickstart.sh'), *words], cwd=ROOT,
                         capture_output=True, text=True,
                         env={**os.environ, 'MMPOSENC_VENV': str(tmp_path / 'venv')})
    assert run.returncode == (2 if message else 0) and message in run.stderr
    assert not (tmp_path / 'venv').exists()
    assert run.stdout.startswith('' if message else 'usage: mmposenc quickstart')


def test_an_interrupted_command_saves_before_all_ends(tmp_path):
    """Ctrl-C reaches both; the command that runs takes a second to save, and its status counts."""
    fake = tmp_path / 'python'
    fake.write_text('#!/usr/bin/env bash\n'
                    'trap \'sleep 1; echo saved; exit 130\' INT; touch started\n'
                    'while :; do sleep 0.05; done\n')
    fake.chmod(0o755)
    # Where the tests themselves run in the background, Ctrl-C is ignored, and so by all they start.
    code = ('import signal, sys; from mmposenc.commands import quickstart\n'
            'signal.signal(signal.SIGINT, signal.default_int_handler)\n'
            f'sys.executable = {str(fake)!r}\nquickstart.run("train", "config")')
    process = subprocess.Popen([sys.executable, '-c', code], cwd=tmp_path, text=True,
                               stdout=subprocess.PIPE, start_new_session=True,
                               env={**os.environ, 'PYTHONPATH': str(ROOT)})
    while not (tmp_path / 'started').exists():
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=30)[0] == 'saved\n' and process.returncode == 130
