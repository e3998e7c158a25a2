"""A training that is resumed with another schedule, rate or weight decay says so."""
import pytest
import torch
from helpers.tiny_run import Data, runner

PLANS = {
    'steps': [dict(type='LinearLR', start_factor=0.1, by_epoch=False, begin=0, end=4),
              dict(type='MultiStepLR', by_epoch=True, milestones=[3, 5], gamma=0.1)],
    'poly': [dict(type='PolyLR', by_epoch=False, begin=0, end=18, power=0.9, eta_min=1e-4)]}


def trained(folder, plan: str, epochs: int, lr: float = 0.1, **options) -> str:
    """The logs of the folder after a training of three steps an epoch."""
    optimizer, schedule = dict(type='SGD', lr=lr, momentum=0.9), PLANS[plan]
    cfg = dict(train_cfg=dict(by_epoch=True, max_epochs=epochs), param_scheduler=schedule,
               optim_wrapper=dict(optimizer=optimizer))
    runner(folder, epochs, train_dataloader=torch.utils.data.DataLoader(Data(3)),
           optim_wrapper=dict(optimizer=dict(optimizer)), param_scheduler=schedule, cfg=cfg,
           **options).train()
    return ''.join(path.read_text() for path in folder.rglob('*.log'))


@pytest.mark.parametrize('plan, lr, changes', [
    ('steps', 0.1, ['train_cfg.max_epochs: 4 -> 6']),
    ('steps', 0.03, ['train_cfg.max_epochs: 4 -> 6', 'optim_wrapper.optimizer.lr: 0.1 -> 0.03']),
    ('poly', 0.1, ['param_scheduler.0.power: none -> 0.9',
                   'param_scheduler.1.milestones.0: 3 -> none'])])
def test_one_line_names_what_differs(tmp_path, plan, lr, changes) -> None:
    assert 'other settings' not in trained(tmp_path, 'steps', 4)
    log = trained(tmp_path, plan, 6, lr, resume=True)
    message, = (line for line in log.splitlines() if 'other settings' in line)
    assert all(change in message for change in changes)


def test_nothing_is_said_without_a_change(tmp_path) -> None:
    trained(tmp_path, 'steps', 3)
    (tmp_path / 'epoch_3.pth').unlink()
    log = trained(tmp_path, 'steps', 3, resume=True)
    assert '6 of them done' in log and 'other settings' not in log
