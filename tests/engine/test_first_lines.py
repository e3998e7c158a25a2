"""What the console says before the first step of a training."""
from __future__ import annotations

import re

import pytest
import torch
from helpers import tiny_run
from helpers.tiny_run import Data
from mmengine.model import BaseModule

WARM_UP = dict(type='LinearLR', start_factor=0.1, by_epoch=False, end=500)


class WithBackbone(tiny_run.Model):
    def __init__(self, file: str | None) -> None:
        super().__init__()
        cfg = file and dict(type='Pretrained', checkpoint=file)
        self.backbone = BaseModule(init_cfg=cfg)


def lines_of(capsys, run) -> list[str]:
    run.train()
    return [line[9:] for line in capsys.readouterr().out.splitlines()]


@pytest.fixture(scope='module')
def weights(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp('weights')
    tiny_run.runner(folder, epochs=1).train()
    return str(folder / 'epoch_1.pth')


def test_where_the_weights_start(tmp_path, capsys, weights) -> None:
    empty = str(tmp_path / 'empty.pth')
    torch.save({}, empty)
    for i, (options, told) in enumerate((
            ({}, 'weights: random'),
            ({'load_from': weights}, f'starts from the weights of {weights}'),
            ({'load_from': weights, 'resume': True}, f'continues {weights}'),
            ({'model': WithBackbone(None)}, 'weights: random'),
            ({'model': WithBackbone(empty)},
             f'backbone: weights of {empty}; all others are random'))):
        lines = lines_of(capsys, tiny_run.runner(tmp_path / str(i), epochs=2, **options))
        said = [line for line in lines if re.search('weights: random|weights of|continues', line)]
        first = next(i for i, line in enumerate(lines) if 'Epoch(train)' in line)
        assert said == [told] and lines.index(told) < first, lines


@pytest.mark.parametrize('schedule, told', [
    (WARM_UP, r'param_scheduler.0 \(LinearLR, end=500\) is longer than the training of 4 steps, '
     'which never reaches the full learning rate; lower its end, or train for longer'),
    (dict(WARM_UP, end=4), None),
    (dict(WARM_UP, by_epoch=True, end=3), r'end=3\) is longer than the training of 2 epochs'),
    (dict(WARM_UP, by_epoch=True, end=3, convert_to_iter_based=True),
     r'end=6\) is longer than the training of 4 steps'),
    (dict(type='LinearLR', start_factor=0.1, by_epoch=False), None),  # ends with the training
    (dict(type='ConstantLR', factor=0.1, by_epoch=False, end=9), r'ConstantLR, end=9\)'),
    (dict(type='LinearLR', start_factor=1, end_factor=0.1, by_epoch=False, end=500), None),
    (dict(type='CosineAnnealingLR', T_max=500, by_epoch=False, end=500), None)])
def test_a_warm_up_longer_than_the_training(tmp_path, capsys, schedule, told) -> None:
    lines = lines_of(capsys, tiny_run.runner(tmp_path, epochs=2, param_scheduler=[schedule]))
    first = next(i for i, line in enumerate(lines) if 'Epoch(train)' in line)
    said = [line for line in lines[:first] if 'warm-up' in line]
    assert len(said) == (told is not None) and (not said or re.search(told, said[0])), lines


@pytest.mark.parametrize('steps, interval, every', [(20, 50, 4), (3, 50, 1), (20, 20, None)])
@pytest.mark.parametrize('by_epoch', [True, False])
def test_a_short_training_has_lines(tmp_path, capsys, steps, interval, every, by_epoch) -> None:
    train_cfg = dict(by_epoch=True, max_epochs=1) if by_epoch else dict(by_epoch=False,
                                                                         max_iters=steps)
    lines = lines_of(capsys, tiny_run.runner(
        tmp_path, train_cfg=train_cfg, log_processor=dict(by_epoch=by_epoch),
        train_dataloader=torch.utils.data.DataLoader(Data(steps)),
        default_hooks=dict(logger=dict(type='LoggerHook', interval=interval))))
    number = sum('(train)' in line for line in lines)
    said = [line for line in lines if 'default_hooks.logger.interval' in line]
    if every is None:
        assert not said and number == 1
        return
    count = 'step' if every == 1 else f'{every} steps'
    assert said == [f'a line every {count}, because the training has fewer than the {interval} of '
                    'default_hooks.logger.interval'], lines
    assert number == steps // every
