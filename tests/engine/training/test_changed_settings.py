"""A training that is resumed with another schedule, rate or weight decay uses the config's."""
import pytest
import torch
from helpers.tiny_run import Data, runner
from mmengine.hooks import Hook

STEPS = 3  # of an epoch
WARM = dict(type='LinearLR', start_factor=0.1, by_epoch=False, begin=0, end=4)
PLANS = {
    'cosine': [dict(type='CosineAnnealingLR', by_epoch=True, begin=0, end=6, T_max=6,
                    eta_min=0.001)],
    'short': [dict(type='CosineAnnealingLR', by_epoch=True, begin=0, end=2, T_max=2,
                   eta_min=0.001)],
    'steps': [WARM, dict(type='MultiStepLR', by_epoch=True, milestones=[3, 5], gamma=0.1)],
    'early': [WARM, dict(type='MultiStepLR', by_epoch=True, milestones=[1, 5], gamma=0.5)],
    'poly': [dict(type='PolyLR', by_epoch=False, begin=0, end=18, power=0.9, eta_min=1e-4)],
    'none': None}


class Rates(Hook):
    """What each step of a training uses."""

    def __init__(self) -> None:
        self.used: list[tuple[int, float, float]] = []

    def before_train_iter(self, runner, batch_idx, data_batch=None) -> None:
        group = runner.optim_wrapper.param_groups[0]
        self.used.append((runner.iter, group['lr'], group['weight_decay']))


def trained(folder, plan: str, epochs: int, *, lr: float = 0.1, decay: float = 0.0, **options):
    """The rates of a training, and the runner."""
    rates, schedule = Rates(), PLANS[plan]
    optimizer = dict(type='SGD', lr=lr, momentum=0.9, weight_decay=decay)
    cfg = dict(train_cfg=dict(by_epoch=True, max_epochs=epochs), param_scheduler=schedule,
               optim_wrapper=dict(optimizer=optimizer))
    run = runner(folder, epochs, train_dataloader=torch.utils.data.DataLoader(Data(STEPS)),
                 optim_wrapper=dict(optimizer=dict(optimizer)), param_scheduler=schedule,
                 custom_hooks=[rates], cfg=cfg, **options)
    run.train()
    return rates.used, run


@pytest.mark.parametrize('before, now, changes', [
    ('short', 'cosine', {}), ('steps', 'early', {}), ('early', 'poly', {}), ('none', 'steps', {}),
    ('steps', 'steps', dict(lr=0.03)), ('cosine', 'cosine', dict(decay=0.2)),
    ('poly', 'none', dict(lr=0.5, decay=0.1))])
def test_the_config_wins(tmp_path, before, now, changes) -> None:
    trained(tmp_path / 'resumed', before, 2)
    expected, _ = trained(tmp_path / 'fresh', now, 6, **changes)
    used, run = trained(tmp_path / 'resumed', now, 6, resume=True, **changes)
    assert used == expected[2 * STEPS:]
    log = ''.join(path.read_text() for path in (tmp_path / 'resumed').rglob('*.log'))
    message, = (line for line in log.splitlines() if 'other settings' in line)
    for key in changes:
        name = dict(lr='lr', decay='weight_decay')[key]
        assert f'optim_wrapper.optimizer.{name}: ' in message
    assert ('param_scheduler' in message) == (before != now)


@pytest.mark.parametrize('plan', ['cosine', 'steps', 'poly'])
def test_a_longer_training_has_the_schedule_of_its_length(tmp_path, plan) -> None:
    """A schedule without an end has the length of the training in which it is built."""
    trained(tmp_path / 'resumed', plan, 2)
    used, _ = trained(tmp_path / 'resumed', plan, 6, resume=True)
    expected, _ = trained(tmp_path / 'fresh', plan, 6)
    assert used == expected[2 * STEPS:]


def test_nothing_is_said_without_a_change(tmp_path) -> None:
    _, run = trained(tmp_path / 'work', 'steps', 3)
    (tmp_path / 'work' / 'epoch_3.pth').unlink()
    trained(tmp_path / 'work', 'steps', 3, resume=True)
    log = ''.join(path.read_text() for path in (tmp_path / 'work').rglob('*.log'))
    assert '6 of them done' in log and 'other settings' not in log
