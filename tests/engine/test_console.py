"""The console: few lines before the first step, none of them lost to the log, and bars."""
import io
import re
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import mmengine
import pytest
import torch
from helpers.scripts import named
from helpers.tiny_data import tiny_detector
from helpers.tiny_tasks import classifier_config
from mmengine.logging import MMLogger, print_log
from rich.console import Console

from mmposenc.commands import main
from mmposenc.engine import ProgressBarHook
from mmposenc.engine.console import quieten_console, score_threshold_remedy
from mmposenc.terminal.messages import reporting_errors


@pytest.mark.parametrize('name, made', [('detector', tiny_detector),
                                        ('classifier', classifier_config)])
def test_training_and_testing_take_few_lines(name, made, tmp_path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    config = str(made(tmp_path))
    options = ['default_hooks.logger.interval=1']
    if name == 'detector':  # mmengine warns of each weight that is frozen
        options += ['model.test_cfg.score_thr=0', 'model.backbone.frozen_stages=1',
                    'optim_wrapper.paramwise_cfg.norm_decay_mult=0']
    main(['train', config, '--work-dir', 'work', '--cfg-options', *options, *named(name)])
    out, err = capfd.readouterr()
    lines = out.splitlines()
    first = next(i for i, line in enumerate(lines) if 'Epoch(train)' in line)
    assert 4 <= first <= 20 and err == '', out + err
    kinds = [re.sub(r'\S*[\d./]\S*', '', line) for line in lines if ' warning: ' in line]
    assert len(kinds) == len(set(kinds)), out
    told = '\n'.join(lines[:first])
    begins = re.search(r' (training \w+ on \w+: [\d.]+ million parameters.*)', told)
    assert 'steps' in told and 'images in batches of' in told and 'results in ' in told
    assert re.search(r' PEG after block 0 of stages 0 to 3: 4 modules, [\d,]+ parameters\n', told)
    last = ' '.join(line[9:] for line in lines[-3:])
    assert re.match(r'result: .*\d.* weights: \S+\.pth log: \S+\.log', last), last
    assert all('Average Precision' not in line and 'Config' not in line for line in lines)
    log = next(Path('work').glob('*/*.log')).read_text()
    for line in ('System environment:', 'Config:', 'Hooks will be executed', begins[1],
                 *(['Average Precision', 'creating index'] if 'data/ann' in log else [])):
        assert line in log
    if name == 'detector':
        assert re.search(r' \d+ more like: backbone\S+ is skipped since', told)
        assert log.count('is skipped since its requires_grad') > 20

    checkpoint = re.search(r'weights: (\S+)', last)[1]
    options += ['model.test_cfg.score_thr=0.9'] * (name == 'detector')
    main(['test', config, checkpoint, '--work-dir', 'test', '--show-dir', 'drawn', '--out',
          'found.pkl', '--cfg-options', *[word for word in options if 'train' not in word],
          *named(f'{name}_test')])
    lines = capfd.readouterr().out.splitlines()
    assert ' testing ' in ' '.join(lines[:3]) and len(lines) < 20, lines
    assert any(' PEG after block 0 of stages 0 to 3: ' in line for line in lines[:4]), lines
    assert f'weights of {checkpoint}; ' in ' '.join(lines[:4])
    last = [line[9:].partition(': ')[0] for line in lines[-4:]]
    assert last[1:] == ['predictions', 'pictures', 'log'] and Path('found.pkl').is_file()
    assert list(Path('drawn').rglob('*.*'))
    if name == 'detector':
        assert last[0].startswith('warning') and lines[-4].endswith(
            'nothing was found in any image: no box scores more than '
            'model.test_cfg.score_thr=0.9; train for longer, or lower it'), lines


def test_who_is_heard(tmp_path, capsys) -> None:
    """Libraries are heard in the log alone, and this project and its users everywhere."""
    log = tmp_path / 'run.log'
    logger = quieten_console(MMLogger('heard', log_file=str(log)))
    speak = """logger.info('a note of ' + name)\nlogger.error('an error of ' + name)
for i in range(3): logger.warning(f'weight.{i} of {name.upper()} is odd')"""
    for name, file in (('mmengine', mmengine.__file__), ('own_hooks', tmp_path / 'own_hooks.py')):
        exec(compile(speak, file, 'exec'), {'logger': logger, 'name': name})
    print_log('a note by print_log', logger)
    out = capsys.readouterr().out.splitlines()
    assert [line[9:] for line in out] == [
        'error: an error of mmengine', 'warning: weight.0 of MMENGINE is odd',
        'a note of own_hooks', 'error: an error of own_hooks',
        'warning: weight.0 of OWN_HOOKS is odd']
    assert logger.handlers[0].filters[0].take_repeated_lines() == [
        '2 more like: weight.0 of MMENGINE is odd', '2 more like: weight.0 of OWN_HOOKS is odd']
    assert logger.handlers[0].filters[0].take_repeated_lines() == []
    written = log.read_text()
    assert all(f'{what} of {who}' in written for what in ('a note', 'an error')
               for who in ('mmengine', 'own_hooks'))
    assert written.count('is odd') == 6 and 'a note by print_log' in written


def test_prints_while_coco_is_read_go_to_the_log(tmp_path, capsys, monkeypatch) -> None:
    logger = quieten_console(MMLogger('prints', log_file=str(tmp_path / 'run.log')))
    monkeypatch.setattr(MMLogger, '_instance_dict', {'prints': logger})
    with reporting_errors(SimpleNamespace()):
        print('creating index...')
        print('Done (t=0.01s)')
        print('a line of the user\n')
        warnings.warn('odd sizes', stacklevel=1)
        warnings.warn('old', DeprecationWarning, stacklevel=1)
    assert capsys.readouterr().out.splitlines()[:2] == ['a line of the user', '']
    written = (tmp_path / 'run.log').read_text()
    assert written.startswith('creating index...\nDone (t=0.01s)\n')
    assert 'odd sizes (' in written and 'old' not in written


@pytest.mark.parametrize('test_cfg, told', [
    (dict(rcnn=dict(score_thr=.05)), 'model.test_cfg.rcnn.score_thr=0.05'),
    (dict(score_thr=.1), 'model.test_cfg.score_thr=0.1'), (dict(max_per_img=5), ''), (None, '')])
def test_the_threshold_is_named(test_cfg, told) -> None:
    from mmengine.config import Config
    for model in (dict(test_cfg=test_cfg), dict(module=dict(test_cfg=test_cfg))):
        said = score_threshold_remedy(Config(dict(model=model)))
        assert told in said and bool(said) == bool(told)


def runner(**kwargs) -> SimpleNamespace:
    return SimpleNamespace(epoch=0, iter=0, max_epochs=2, max_iters=8, val_dataloader=[0] * 3,
                           test_dataloader=[0] * 5, **kwargs)


def drawn(console: Console) -> str:
    return re.sub(r'\x1b\[[0-9;?]*[a-zA-Z]', '', console.file.getvalue())


def test_terminal_shows_how_far_and_how_long(tmp_path) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    logger = quieten_console(MMLogger('bar', log_file=str(tmp_path / 'run.log')))
    hook, run, stdout = ProgressBarHook(console), runner(), sys.stdout
    hook.before_train(run)
    logger.warning('a line')  # above the bar
    print('one more')
    print('creating index...')
    run.iter, run.epoch = 5, 1
    hook.after_train_iter(run, 1, outputs={'loss': torch.tensor(1.25, requires_grad=True)})
    hook.before_val_epoch(run)
    hook.after_val_iter(run, 1)
    hook.bar.refresh()
    hook.after_val_epoch(run)
    hook.after_train(run)
    hook.after_run(run)
    text = drawn(console)
    assert re.search(r'train .*6/8 eta .*epoch 2/2 loss 1\.2500', text)
    assert re.search(r'val .*2/3', text) and 'creating index' not in text
    assert 'warning: a line\n' in text.replace('\r', '') and 'one more\n' in text
    assert sys.stdout is stdout and not hook.tasks
    assert '\x1b[?25h' in console.file.getvalue()  # the cursor is back
    hook.before_test_epoch(run)  # the hook may be used again
    hook.after_test_iter(run, 3)
    hook.bar.refresh()
    hook.after_run(run)
    assert re.search(r'test .*4/5', drawn(console)[len(text):]) and sys.stdout is stdout


def test_a_file_gets_nothing() -> None:
    out = Console(file=io.StringIO())
    hook, run = ProgressBarHook(out), runner()
    hook.before_train(run)
    hook.after_train_iter(run, 0, outputs={'loss': torch.tensor(1.0)})
    hook.before_test_epoch(run)
    hook.after_test_iter(run, 0)
    hook.after_run(run)
    assert out.file.getvalue() == ''


def test_a_silent_run_says_where_it_is(tmp_path, monkeypatch) -> None:
    """A watcher prints these words when no line came for long."""
    from mmposenc.engine.console import ConsoleHook
    said = []
    monkeypatch.setattr('mmposenc.engine.console.note_activity', said.append)
    hook = ConsoleHook()
    run = SimpleNamespace(iter=0, max_iters=4, val_dataloader=[0] * 2, test_dataloader=[0] * 3)
    hook.before_train_epoch(run)
    for run.iter in range(4):
        hook.after_train_iter(run, run.iter % 2)
    hook.before_val_epoch(run)
    hook.after_val_iter(run, 0)
    hook.before_test_epoch(run)
    hook.after_test_iter(run, 2)
    assert said == [*(f'training, step {step} of 4' for step in (1, 2, 3, 4, 4)),
                    'validation, batch 1 of 2', 'validation, batch 2 of 2',
                    'test, batch 1 of 3', 'test, batch 3 of 3']
