"""Schedules and checkpoints are compared with the loop and its length before the first step."""
import re
from types import SimpleNamespace

import pytest
import torch
from helpers import tiny_run
from helpers.upstream_configs import folder
from mmengine.config import Config
from mmengine.optim import OptimWrapper
from mmengine.registry import PARAM_SCHEDULERS, init_default_scope
from mmengine.runner import IterBasedTrainLoop

from mmposenc.engine.training import schedules

EPOCHS = dict(by_epoch=True, max_epochs=20)
STEPS = dict(type='IterBasedTrainLoop', max_iters=40)
MILESTONES = dict(type='MultiStepLR', milestones=[2, 4])
WARM_UP = dict(type='LinearLR', start_factor=0.1)


def said(tmp_path, capsys, loop=EPOCHS, checkpoint=None, log=1, **options) -> str:
    """The warnings before the first of 20 epochs of two steps, or of 40 steps."""
    tiny_run.runner(tmp_path, train_cfg=loop, default_hooks=dict(
        checkpoint=dict(type='CheckpointHook', **(checkpoint or dict(by_epoch=False, interval=9))),
        logger=dict(type='LoggerHook', interval=log)), optim_wrapper=dict(
            optimizer=dict(type='SGD', lr=0.1, momentum=0.9)), **options).train()
    lines = capsys.readouterr().out.splitlines()
    first = next(i for i, line in enumerate(lines) if '(train)' in line)
    return '\n'.join(line for line in lines[:first] if 'warning: ' in line
                     and 'metainfo' not in line)


@pytest.mark.parametrize('schedule, told', [
    (dict(type='PolyLR', by_epoch=False, end=160000),
     r'param_scheduler.0 \(PolyLR, end=160000\) is longer than the training of 40 steps; lower'),
    ([{**WARM_UP, 'by_epoch': False, 'end': 500}],
     r'the warm-up of param_scheduler.0 \(LinearLR, end=500\) is longer .* of 40 steps'),
    ([{**WARM_UP, 'end': 3}], ''), ([{**WARM_UP, 'by_epoch': False}], ''),
    ([{**WARM_UP, 'end': 3}, dict(type='CosineAnnealingLR', begin=3, T_max=17, end=20)], ''),
    ([{**WARM_UP, 'end': 5, 'convert_to_iter_based': True}, MILESTONES], ''),
    (dict(type='CosineAnnealingLR', T_max=100),
     r'\(CosineAnnealingLR, T_max=100\) is longer .* training of 20 epochs; lower its T_max'),
    ([dict(type='CosineAnnealingLR', T_max=7, end=7)],
     r'LR, T_max=7, end=7\) is shorter than the training: lr .* from step 14 to the last, 40;'),
    ([dict(type='CosineAnnealingMomentum', T_max=7)],
     r'T_max=7, end=20\) is shorter than the training: momentum .* from step 14 '),
    ({**MILESTONES, 'milestones': [9, 30]}, r'milestones=30\) is longer'),
    ({**MILESTONES, 'end': 3}, r'milestones=4\) is longer than its end=3; .* raise'),
    (dict(type='StepLR', step_size=50), r'step_size=50\) is longer than the training of 20'),
    (dict(type='CosineRestartLR', periods=[3, 4], restart_weights=[1, 1], eta_min=0),
     r'periods=7, end=20\) is shorter .* from step 14'),
    (dict(type='ExponentialLR', gamma=0.9), ''), (dict(type='OneCycleLR', eta_max=1), ''),
    (dict(type='ReduceOnPlateauLR', monitor='acc'), '')])
def test_a_schedule_and_its_training(tmp_path, capsys, schedule, told) -> None:
    lines = said(tmp_path, capsys, param_scheduler=schedule)
    assert bool(lines) == bool(told) and re.search(told, lines), lines
    assert len(lines.splitlines()) <= 1 or 'milestones' in lines


def test_epochs_in_a_loop_of_iterations(tmp_path) -> None:
    with pytest.raises(ValueError, match=r'param_scheduler.1 \(MultiStepLR\): by_epoch=True counts '
                                         r'epochs, and an IterBasedTrainLoop has none, so lr'):
        said(tmp_path, None, STEPS, param_scheduler=[
            {**WARM_UP, 'by_epoch': False, 'end': 4}, MILESTONES])


def test_a_cycle_that_would_stop_a_training(tmp_path) -> None:
    with pytest.raises(ValueError, match=r'total_steps=7 are over before the training of 20 epoch'):
        said(tmp_path, None, param_scheduler=dict(type='OneCycleLR', eta_max=1, total_steps=7))


def test_each_optimizer_has_schedules_of_its_own(monkeypatch) -> None:
    lines = []
    monkeypatch.setattr(schedules, 'warn', lines.append)
    described = {'a': [dict(type='StepLR', step_size=3)], 'b': [dict(type='StepLR', step_size=99)]}
    optimizer = OptimWrapper(torch.optim.SGD([torch.zeros(1)], lr=1))
    built = {name: [PARAM_SCHEDULERS.build(each, default_args=dict(optimizer=optimizer))
                    for each in group] for name, group in described.items()}
    runner = SimpleNamespace(max_epochs=20, max_iters=40, train_loop=None)
    schedules.check_schedules(runner, built)
    assert len(lines) == 1 and lines[0].startswith('param_scheduler.b.0 (StepLR, step_size=99) is')


@pytest.mark.parametrize('loop, hook, log, told', [
    (STEPS, dict(by_epoch=True, interval=1), 1, 'error: .*; write by_epoch=False and an'),
    (STEPS, dict(by_epoch=False, interval=41), 1, 'error: .*interval=41.* of 40 steps; write sma'),
    (STEPS, dict(by_epoch=False, interval=4, save_begin=50), 1, 'error: .*save_begin=50'),
    (STEPS, dict(by_epoch=False, interval=4000), 50, 'warning: .*no checkpoint before the end'),
    (EPOCHS, dict(by_epoch=True, interval=21), 1, 'warning: .*no checkpoint before the end'),
    (EPOCHS, dict(by_epoch=False, interval=4000), 1, 'warning: .*no checkpoint before the end'),
    (STEPS, dict(by_epoch=False, interval=40), 1, ''), (STEPS, dict(interval=-1), 1, '')])
def test_an_interval_of_checkpoints_that_never_comes(tmp_path, capsys, loop, hook, log, told
                                                     ) -> None:
    try:
        lines = said(tmp_path, capsys, loop, hook, log)
    except ValueError as error:
        lines = f'error: {error}'
    assert bool(lines) == bool(told) and re.search(told, lines), lines


@pytest.mark.slow
def test_no_false_alarm_for_the_configs_of_the_libraries(monkeypatch) -> None:
    found, epoch = set(), 7330  # steps of COCO on 8 GPUs
    monkeypatch.setattr(schedules, 'warn', lambda _: found.add(path.stem))
    for library in ('mmdet', 'mmseg', 'mmpretrain'):
        init_default_scope(library)
        for path in sorted(folder(library).rglob('*.py')):
            try:
                cfg = Config.fromfile(path)
            except Exception:  # Of another package, or broken in the release.
                continue
            loop = cfg.get('train_cfg') or {}
            length = loop.get('max_epochs') or loop.get('max_iters')
            if '_base_' in path.parts or not cfg.get('param_scheduler') or not length:
                continue
            epochs, steps = (length, length * epoch) if 'max_epochs' in loop else (1, length)
            runner = SimpleNamespace(
                max_epochs=epochs, max_iters=steps, val_loop=True,
                train_loop=object.__new__((IterBasedTrainLoop, object)[epochs > 1]))
            wrapper = OptimWrapper(torch.optim.SGD([torch.zeros(1)], lr=1, momentum=0.9))
            nodes = cfg.param_scheduler
            built = [PARAM_SCHEDULERS.build(
                {'end': epochs if node.get('by_epoch', True) else steps, **node},
                default_args=dict(optimizer=wrapper, epoch_length=epoch))
                for node in (nodes if isinstance(nodes, list) else [nodes])]
            schedules.check_schedules(runner, built)
    # Inherited milestones and ends, as in faster-rcnn_r50-caffe_fpn_ms-2x: seen one by one.
    assert len(found) <= 10, found
