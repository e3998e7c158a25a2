"""The runner: checkpoints are whole or not there."""
from __future__ import annotations

import signal

import pytest
import torch
from mmengine.fileio import LocalBackend
from mmengine.registry import RUNNERS
from safetensors.torch import save_file
from tinyrunner import runner

from mmposenc.engine import Runner


def test_registered() -> None:
    assert RUNNERS.get('mmposenc.Runner') is Runner


def test_a_save_that_fails_leaves_the_old_file(tmp_path, monkeypatch) -> None:
    run = runner(tmp_path)
    run.train()
    path = tmp_path / 'epoch_1.pth'
    before = path.read_bytes()

    def put(self, data, name):
        with open(name, 'wb') as file:
            file.write(data[:100])
        raise KeyboardInterrupt
    monkeypatch.setattr(LocalBackend, 'put', put)
    with pytest.raises(KeyboardInterrupt):
        run.save_checkpoint(str(tmp_path), 'epoch_1.pth')
    assert path.read_bytes() == before
    assert not list(tmp_path.glob('*.partial'))


@pytest.mark.parametrize('wrapped', [False, True])
def test_weights_alone_are_a_checkpoint_to_hooks_too(tmp_path, wrapped) -> None:
    run = runner(tmp_path, custom_hooks=[dict(type='EMAHook')])
    run.call_hook('before_run')
    weights = {name: torch.randn_like(value) for name, value in run.model.state_dict().items()}
    path = str(tmp_path / ('all.pth' if wrapped else 'weights.safetensors'))
    torch.save(dict(state_dict=weights), path) if wrapped else save_file(weights, path)
    run.load_checkpoint(path)
    average = next(hook.ema_model for hook in run.hooks if hasattr(hook, 'ema_model')).module
    for model in (run.model, average):
        torch.testing.assert_close(dict(model.state_dict()), weights, rtol=0, atol=0)


def test_an_error_gives_the_signals_back(tmp_path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    run = runner(tmp_path)
    run.model.forward = lambda *args, **kwargs: 1 / 0
    with pytest.raises(ZeroDivisionError):
        run.train()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
