"""SIGINT and SIGTERM: what is saved, and that it continues exactly."""
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from helpers import tiny_run
from helpers.scripts import ROOT
from mmengine.hooks import Hook

from mmposenc.checkpoint import load_checkpoint
from mmposenc.engine import Runner
from mmposenc.engine.training.interrupt import Interrupted


class Signal(Hook):
    """Sends a signal in the nth training iteration, or in the nth of validations."""

    def __init__(self, train: int | None = None, val: int | None = None, times: int = 1) -> None:
        self.train, self.val, self.times, self.count = train, val, times, 0

    def send(self) -> None:
        for _ in range(self.times):
            os.kill(os.getpid(), signal.SIGTERM)

    def before_train_iter(self, runner, batch_idx, data_batch=None) -> None:
        if runner.iter == self.train:
            self.send()

    def before_val_iter(self, runner, batch_idx, data_batch=None) -> None:
        self.count += 1
        if self.count == self.val:
            self.send()


class Lost(tiny_run.Data):
    """Sends a signal and raises the error of a dead worker, the fifth time it is read."""

    count = 0

    def __getitem__(self, index: int) -> dict:
        self.count += 1
        if self.count == 5:
            os.kill(os.getpid(), signal.SIGTERM)
            raise RuntimeError('DataLoader worker exited unexpectedly')
        return super().__getitem__(index)


def runner(work_dir, *hooks, train=tiny_run.Data, val=tiny_run.Data, **kwargs) -> Runner:
    torch.manual_seed(0)
    train, val = (torch.utils.data.DataLoader(data(3)) for data in (train, val))
    return tiny_run.runner(
        work_dir, epochs=3, train_dataloader=train, val_dataloader=val,
        val_cfg=dict(), val_evaluator=[tiny_run.Count()], randomness=dict(seed=3),
        default_hooks=dict(checkpoint=dict(type='CheckpointHook', interval=3)),
        custom_hooks=[dict(type='EMAHook', momentum=0.25), *hooks],
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1, momentum=0.9)), **kwargs)


@pytest.fixture(scope='module')
def whole(tmp_path_factory) -> dict:
    work = tmp_path_factory.mktemp('whole')
    runner(work).train()
    return load_checkpoint(work / 'epoch_3.pth')


@pytest.mark.parametrize('at, data, place', [
    (dict(train=4), {}, (1, 5, {'epoch': 1, 'image': 2})),
    (dict(train=5), {}, (1, 6, {'epoch': 1, 'image': 3})),  # the epoch is yet to be closed
    (dict(val=5), {}, (2, 6, {'epoch': 2, 'image': 0})),  # the moving average is in the model
    ({}, dict(train=Lost), (1, 4, {'epoch': 1, 'image': 1})),
    ({}, dict(val=Lost), (2, 6, {'epoch': 2, 'image': 0}))])
def test_an_interrupted_run_continues_exactly(tmp_path, whole, at, data, place) -> None:
    with pytest.raises(Interrupted) as status:
        runner(tmp_path, Signal(**at), **data).train()
    assert status.value.code == 128 + signal.SIGTERM
    assert sorted(path.name for path in tmp_path.glob('*.pth')) == ['interrupted.pth']
    log = next(tmp_path.glob('*/*.log')).read_text()
    assert f'continue from {tmp_path / "interrupted.pth"} with --resume auto' in log
    meta = load_checkpoint(tmp_path / 'interrupted.pth')['meta']
    assert (meta['epoch'], meta['iter'], meta['data']) == place
    validations = Signal()
    again = runner(tmp_path, validations, resume=True)
    again.train()
    assert validations.count == 6  # those of two epochs, that of the interruption included
    result = load_checkpoint(tmp_path / 'epoch_3.pth')
    for part in ('state_dict', 'ema_state_dict'):
        torch.testing.assert_close(dict(result[part]), dict(whole[part]), rtol=0, atol=0)
    momenta = [checkpoint['optimizer']['state'][0]['momentum_buffer']
               for checkpoint in (whole, result)]
    assert torch.equal(*momenta)
    assert not (tmp_path / 'interrupted.pth').exists()


def test_a_second_signal_goes_to_who_had_it_before_and_nothing_is_saved(tmp_path) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit('the one before'))
    run = runner(tmp_path, Signal(train=4, times=2))
    with pytest.raises(SystemExit, match='the one before'):
        run.train()
    assert run.iter == 4 and not list(tmp_path.glob('*.pth'))


def test_an_error_gives_the_signals_back(tmp_path) -> None:
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGCHLD]
    before = [signal.getsignal(number) for number in numbers]
    run = runner(tmp_path, Signal(train=0))
    run.model.forward = lambda *args, **kwargs: 1 / 0
    with pytest.raises(ZeroDivisionError):
        run.train()
    assert [signal.getsignal(number) for number in numbers] == before


def test_the_place_of_a_checkpoint_that_mmengine_wrote(tmp_path) -> None:
    loop = runner(tmp_path).train_loop
    loop._epoch, loop._iter = 1, 5
    loop.continue_at({'epoch': 1, 'iter': 5})
    assert (loop._pass, loop._batch) == (1, 0)


GROUP = """
import sys, time
from pathlib import Path
import torch
from helpers import tiny_run

class Group(tiny_run.Model):
    count = 0
    def forward(self, inputs, mode='tensor'):
        Group.count += 1
        if Group.count == 5:
            Path(sys.argv[1], 'started').touch()
            time.sleep(3)
        return super().forward(inputs, mode)

tiny_run.runner(sys.argv[1], model=Group(), train_dataloader=torch.utils.data.DataLoader(
    tiny_run.Data(40), num_workers=2)).train()
"""


def test_a_signal_to_the_whole_group_is_an_interrupt(tmp_path) -> None:
    """The workers of the loader end by it, too."""
    process = subprocess.Popen(
        [sys.executable, '-c', GROUP, str(tmp_path)], start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, 'PYTHONPATH': f'{ROOT}{os.pathsep}{ROOT / "tests"}'})
    while not (tmp_path / 'started').exists():
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM, out + err
    assert 'Traceback' not in err and (tmp_path / 'interrupted.pth').is_file()
    assert 'interrupted in epoch 1, after iteration 5' in out
