"""A training that is resumed with another schedule, rate or weight decay says so."""
import pytest
import torch
from helpers.tiny_run import Data, runner
from mmengine.hooks import Hook

STEPS = 3  # of an epoch
PLANS = {
    'steps': [dict(type='LinearLR', start_factor=0.1, by_epoch=False, begin=0, end=4),
              dict(type='MultiStepLR', by_epoch=True, milestones=[3, 5], gamma=0.1)],
    'poly': [dict(type='PolyLR', by_epoch=False, begin=0, end=18, power=0.9, eta_min=1e-4)]}


class Rates(Hook):
    """The rate of each step."""

    def __init__(self) -> None:
        self.used: list[float] = []

    def before_train_iter(self, runner, batch_idx, data_batch=None) -> None:
        self.used.append(runner.optim_wrapper.param_groups[0]['lr'])


def trained(folder, plan: str, epochs: int, lr: float = 0.1, **options) -> tuple[list[float], str]:
    """The rates of a training, and its log."""
    rates, schedule = Rates(), PLANS[plan]
    optimizer = dict(type='SGD', lr=lr, momentum=0.9)
    cfg = dict(train_cfg=dict(by_epoch=True, max_epochs=epochs), param_scheduler=schedule,
               optim_wrapper=dict(optimizer=optimizer))
    runner(folder, epochs, train_dataloader=torch.utils.data.DataLoader(Data(STEPS)),
           optim_wrapper=dict(optimizer=dict(optimizer)), param_scheduler=schedule,
           custom_hooks=[rates], cfg=cfg, **options).train()
    return rates.used, ''.join(path.read_text() for path in folder.rglob('*.log'))


@pytest.mark.parametrize('plan, lr, changes', [
    ('steps', 0.1, ['train_cfg.max_epochs: 4 -> 6']),
    ('steps', 0.03, ['train_cfg.max_epochs: 4 -> 6', 'optim_wrapper.optimizer.lr: 0.1 -> 0.03']),
    ('poly', 0.1, ['param_scheduler.0.power: none -> 0.9',
                   'param_scheduler.1.milestones.0: 3 -> none'])])
def test_the_checkpoints_settings_go_on_and_one_line_names_the_others(tmp_path, plan, lr, changes
                                                                      ) -> None:
    expected, log = trained(tmp_path / 'whole', 'steps', 6)
    assert 'other settings' not in log
    trained(tmp_path / 'resumed', 'steps', 4)
    used, log = trained(tmp_path / 'resumed', plan, 6, lr, resume=True)
    message, = (line for line in log.splitlines() if 'other settings' in line)
    assert all(f'{change}' in message for change in changes)
    if plan == 'steps':  # Its schedule ended with its training, before the second milestone.
        assert used == expected[3 * STEPS:4 * STEPS] * 2


def test_nothing_is_said_without_a_change(tmp_path) -> None:
    trained(tmp_path, 'steps', 3)
    (tmp_path / 'epoch_3.pth').unlink()
    _, log = trained(tmp_path, 'steps', 3, resume=True)
    assert '6 of them done' in log and 'other settings' not in log
