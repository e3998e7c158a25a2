"""SIGINT and SIGTERM: what is saved, and that it continues exactly."""
import os
import signal
import subprocess
import sys

import pytest
import torch
from helpers import tiny_run
from helpers.scripts import ROOT
from helpers.tiny_run import Data
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


def runner(work_dir, *hooks, **kwargs) -> Runner:
    torch.manual_seed(0)
    data = torch.utils.data.DataLoader
    return tiny_run.runner(
        work_dir, epochs=3, train_dataloader=data(Data(3)), val_dataloader=data(Data(3)),
        val_cfg=dict(), val_evaluator=[tiny_run.Count()], randomness=dict(seed=3),
        default_hooks=dict(checkpoint=dict(type='CheckpointHook', interval=3)),
        custom_hooks=[dict(type='EMAHook', momentum=0.25), *hooks],
        optim_wrapper=dict(optimizer=dict(type='SGD', lr=0.1, momentum=0.9)), **kwargs)


@pytest.fixture(scope='module')
def whole(tmp_path_factory) -> dict:
    work = tmp_path_factory.mktemp('whole')
    runner(work).train()
    return load_checkpoint(work / 'epoch_3.pth')


@pytest.mark.parametrize('at, place', [
    (dict(train=4), (1, 5, {'epoch': 1, 'image': 2})),
    (dict(train=5), (1, 6, {'epoch': 1, 'image': 3})),  # the epoch is yet to be closed
    (dict(val=5), (2, 6, {'epoch': 2, 'image': 0}))])  # the moving average is in the model
def test_an_interrupted_run_continues_exactly(tmp_path, whole, at, place) -> None:
    with pytest.raises(Interrupted) as status:
        runner(tmp_path, Signal(**at)).train()
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
        for name, value in whole[part].items():
            assert torch.equal(value, result[part][name]), name
    momenta = [checkpoint['optimizer']['state'][0]['momentum_buffer']
               for checkpoint in (whole, result)]
    assert torch.equal(*momenta)
    assert not (tmp_path / 'interrupted.pth').exists()


def test_a_second_signal_ends_it_at_once_without_saving(tmp_path) -> None:
    run = runner(tmp_path, Signal(train=4, times=2))
    with pytest.raises(Interrupted):
        run.train()
    assert run.iter == 4 and not list(tmp_path.glob('*.pth'))


def test_the_place_of_a_checkpoint_that_mmengine_wrote(tmp_path) -> None:
    run = runner(tmp_path / 'a')
    run.train_loop  # noqa: B018  (builds it)
    loop = run.train_loop
    loop._epoch, loop._iter = 1, 5
    loop.continue_at({'epoch': 1, 'iter': 5})
    assert (loop._pass, loop._batch) == (1, 0)


GROUP = """
import os, signal, sys, time
import torch
from helpers import tiny_run

class Slow(tiny_run.Data):
    def __getitem__(self, index):
        time.sleep(0.05)
        return super().__getitem__(index)

def loader():
    return torch.utils.data.DataLoader(Slow(40), num_workers=2)

workers_first, what = sys.argv[2] == 'workers', sys.argv[3]

class Group(tiny_run.Model):
    count = 0
    def forward(self, inputs, mode='tensor'):
        Group.count += 1
        if Group.count == 5:
            if workers_first:
                import multiprocessing
                for child in multiprocessing.active_children():
                    os.kill(child.pid, signal.SIGTERM)
                if os.fork() == 0:
                    time.sleep(0.3)
                    os.kill(os.getppid(), signal.SIGTERM)
                    os._exit(0)
            else:
                os.killpg(0, signal.SIGTERM)
                time.sleep(0.5)
        return super().forward(inputs, mode)

run = tiny_run.runner(
    sys.argv[1], epochs=3, model=Group(), train_dataloader=loader(),
    test_dataloader=loader(), test_cfg=dict(), test_evaluator=[tiny_run.Count()])
getattr(run, what)()
"""


@pytest.mark.parametrize('first', ['group', 'workers'])
@pytest.mark.parametrize('what', ['train', 'test'])
def test_a_signal_to_the_whole_group_is_an_interrupt(tmp_path, first, what) -> None:
    (tmp_path / 'group.py').write_text(GROUP)
    done = subprocess.run(
        [sys.executable, str(tmp_path / 'group.py'), str(tmp_path), first, what],
        start_new_session=True, capture_output=True, text=True, timeout=300,
        env={**os.environ, 'PYTHONPATH': f'{ROOT}{os.pathsep}{ROOT / "tests"}'})
    assert done.returncode == 128 + signal.SIGTERM, done.stdout + done.stderr
    assert 'Traceback' not in done.stderr
    if what == 'train' and first == 'group':
        assert (tmp_path / 'interrupted.pth').is_file()
        assert 'interrupted by SIGTERM in epoch 1, after iteration 5' in done.stdout
