"""The console: few lines before the first step, and none of them lost to the log."""
import re
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import mmengine
import pytest
import torch
from helpers import tiny_run
from helpers.scripts import named
from helpers.tiny_data import tiny_detector
from mmengine.logging import MMLogger, print_log
from mmengine.model import BaseModule

from mmposenc.commands import main
from mmposenc.engine import console
from mmposenc.engine.console import quieten_console
from mmposenc.terminal import messages
from mmposenc.terminal.messages import reporting_errors


def test_training_and_testing_take_few_lines(tmp_path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    config = str(tiny_detector(tmp_path))
    # mmengine warns of each weight that is frozen.
    main(['train', config, '--work-dir', 'work', '--cfg-options', 'model.test_cfg.score_thr=0',
          'model.backbone.frozen_stages=1', 'optim_wrapper.paramwise_cfg.norm_decay_mult=0',
          *named('detector')])
    out, err = capfd.readouterr()
    lines = out.splitlines()
    first = next(i for i, line in enumerate(lines) if 'Epoch(train)' in line)
    assert 4 <= first <= 20 and err == '', out + err
    kinds = [re.sub(r'\S*[\d./]\S*', '', line) for line in lines if ' warning: ' in line]
    assert len(kinds) == len(set(kinds)), out
    told = '\n'.join(lines[:first])
    begins = re.search(r' (training \w+ on \w+: [\d.]+ million parameters.*)', told)
    assert re.search(r' data: \S+/images/?, 4 images, in batches of 2; validation: \S+, 4 i', told)
    assert 'steps' in told and 'results in ' in told and 'base_lr' not in out
    assert ' starts from random weights\n' in told
    assert re.search(r' PEG after block 0 of stages 0 to 3: 4 modules, [\d,]+ parameters\n', told)
    assert told.count('is skipped since its requires_grad') == 1
    last = ' '.join(line[9:] for line in lines[-3:])
    assert re.match(r'result: .*\d.* weights: \S+\.pth log: \S+\.log', last), last
    assert all('Average Precision' not in line and 'Config' not in line for line in lines)
    log = next(Path('work').glob('*/*.log')).read_text()
    for line in ('System environment:', 'Config:', 'Hooks will be executed', begins[1]):
        assert line in log
    assert log.count('is skipped since its requires_grad') > 20

    checkpoint = re.search(r'weights: (\S+\.pth)', last)[1]
    main(['test', config, checkpoint, '--work-dir', 'test', '--show-dir', 'drawn', '--cfg-options',
          'model.test_cfg.score_thr=0', *named('tested')])
    lines = capfd.readouterr().out.splitlines()
    assert ' testing ' in ' '.join(lines[:3]) and len(lines) < 20, lines
    assert any(' PEG after block 0 of stages 0 to 3: ' in line for line in lines[:4]), lines
    assert f'weights of {checkpoint}; data: ' in ' '.join(lines[:4])
    assert all('mAP_l: -1' not in line and 'Load checkpoint' not in line for line in lines)
    assert 'result: ' in lines[-3] and 'log: ' in lines[-2] and lines[-1] == 'pictures: drawn'


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
    written = log.read_text()
    assert all(f'{what} of {who}' in written for what in ('a note', 'an error')
               for who in ('mmengine', 'own_hooks'))
    assert written.count('is odd') == 6 and 'a note by print_log' in written
    logger.warning('classes: ' + 'class, ' * 1000)
    assert len(capsys.readouterr().out) < 1100 and 'class, ' * 1000 in log.read_text()


def test_a_long_silence_is_broken(capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(messages, 'SILENCE', 0.02)
    for line in ([], ['a line']):
        with reporting_errors(SimpleNamespace()):
            [*map(print, line), time.sleep(0.2)]
        assert capsys.readouterr().err == 'loading libraries, config and data\n' * (not line)
    monkeypatch.setattr(console, 'SILENCE', 0.0)
    tiny_run.runner(tmp_path, epochs=2).train()
    assert len(re.findall(r' 1 step in 0 s; about \d:\d\d:\d\d left\n',
                          capsys.readouterr().out)) == 1


def test_prints_of_libraries_are_dropped_and_warnings_logged(tmp_path, capsys, monkeypatch
                                                             ) -> None:
    logger = quieten_console(MMLogger('prints', log_file=str(tmp_path / 'run.log')))
    monkeypatch.setattr(MMLogger, '_instance_dict', {'prints': logger})
    with reporting_errors(SimpleNamespace()):
        print('creating index...')
        print('Done (t=0.01s)')
        print('a line of the user\n')
        warnings.warn('odd sizes', stacklevel=1)
        warnings.warn('old', DeprecationWarning, stacklevel=1)
        warnings.warn('For binary segmentation, we suggest using `out_channels = 1`', stacklevel=1)
        warnings.warn('The given NumPy array is not writable, and PyTorch', stacklevel=1)
    assert capsys.readouterr().out.splitlines()[:2] == ['a line of the user', '']
    written = (tmp_path / 'run.log').read_text()
    assert written.count(' - WARNING - ') == 1 and 'odd sizes (' in written


class WithBackbone(tiny_run.Model):
    def __init__(self, file: str | None) -> None:
        super().__init__()
        self.backbone = BaseModule(init_cfg=file and dict(type='Pretrained', checkpoint=file))


def lines_before_training(capsys, run) -> list[str]:
    run.train()
    lines = [line[9:] for line in capsys.readouterr().out.splitlines()]
    return lines[:next(i for i, line in enumerate(lines) if '(train)' in line)]


def test_where_the_weights_start(tmp_path, capsys) -> None:
    tiny_run.runner(tmp_path / 'first', epochs=1).train()
    capsys.readouterr()
    weights, empty = str(tmp_path / 'first' / 'epoch_1.pth'), str(tmp_path / 'empty.pth')
    torch.save({}, empty)
    for i, (options, told) in enumerate((
            ({'load_from': weights}, f'starts from the weights of {weights}'),
            ({'load_from': weights, 'resume': True}, f'continues {weights}'),
            ({'model': WithBackbone(None)}, 'starts from random weights'),
            ({'model': WithBackbone(empty)}, f'weights of {empty}; all others are random'))):
        assert told in lines_before_training(
            capsys, tiny_run.runner(tmp_path / str(i), epochs=2, **options))


@pytest.mark.parametrize('steps, interval, lines', [(20, 50, 5), (3, 50, 3), (20, 20, 1)])
def test_a_short_training_has_lines(tmp_path, capsys, steps, interval, lines) -> None:
    tiny_run.runner(
        tmp_path, epochs=1, train_dataloader=torch.utils.data.DataLoader(tiny_run.Data(steps)),
        default_hooks=dict(logger=dict(type='LoggerHook', interval=interval))).train()
    assert capsys.readouterr().out.count('(train)') == lines
