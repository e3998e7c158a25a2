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

SMALL = 'retinanet_pvt-micro-peg_fpn_1xb4-12e_trees'
SCORES = {'coco/bbox_mAP': 0.25, 'coco/bbox_mAP_50': 0.5, 'coco/bbox_mAP_75': 0.0}


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """The commands that are run: a training leaves a checkpoint, and a test its scores."""
    done = []

    def run(command, config, *words):
        done.append((command, config.split('/')[-1].removesuffix('.py'),
                     *(word for word in words if word == '--amp' or not word.startswith('--'))))
        work = tmp_path / words[words.index('--work-dir') + 1]
        if command == 'train':
            work.mkdir(parents=True)
            (work / 'last_checkpoint').write_text('elsewhere/epoch_12.pth')
            return
        found = SCORES if work.name == 'test_same_area' else {}  # the other finds nothing
        for hour, metrics in ((12, {**SCORES, 'coco/bbox_mAP': 0.125}), (13, found)):
            (work / f'20260101_{hour}').mkdir(parents=True, exist_ok=True)
            (work / f'20260101_{hour}' / f'20260101_{hour}.json').write_text(json.dumps(metrics))
        (work / '20260101_14').mkdir(exist_ok=True)  # a test that was stopped
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(quickstart, 'run', run)
    monkeypatch.setattr(prepare, 'main', lambda words: done.append(('prepare', *words)))
    return done


@pytest.mark.parametrize('device, flags, amp', [
    ('cpu', 'avx512_bf16', ['--amp']), ('cpu', 'avx512f', []), ('cuda', 'avx512_bf16', [])])
def test_it_trains_once_and_tests_twice(device, flags, amp, asked, capsys, monkeypatch):
    """In bfloat16 on a CPU that has instructions for it."""
    monkeypatch.setattr('mmposenc.functional.linear._cpu_info', lambda: f'flags\t: fpu {flags}\n')
    monkeypatch.setattr('mmengine.device.get_device', lambda: device)
    work = 'work_dirs/quickstart-seed1'
    tests = [('test', config, f'{work}/epoch_12.pth', f'{work}/test_{name}',
              f'{work}/pictures/{name}')
             for config, name in ((f'{SMALL}-block', 'same_area'), (SMALL, 'another_area'))]
    quickstart.main(['--seed', '1'])
    assert asked == [('prepare', 'trees'),
                     ('train', f'{SMALL}-quick', work, *amp, 'randomness.seed=1'), *tests]
    assert capsys.readouterr().out.endswith(
        '                  AP    AP50    AP75\n'
        'same area      0.250   0.500   0.000\n'
        'another area       -       -       -\n'
        f'pictures: {work}/pictures (left: ground truth, right: predictions)\n')
    asked.clear()
    quickstart.main(['--seed', '1'])
    assert asked == [('prepare', 'trees'), *tests]
    assert 'already trained' in capsys.readouterr().out


@pytest.mark.parametrize('words, message', [
    (['--sead'], 'unrecognized arguments: --sead'), (['--help'], '')])
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
