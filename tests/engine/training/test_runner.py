"""The runner: weights alone are a checkpoint, and signals go back."""
import signal

import pytest
import torch
from helpers.tiny_run import runner
from safetensors.torch import save_file


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


def test_the_seed_of_a_resumed_run_is_that_run_s_alone(tmp_path) -> None:
    first = runner(tmp_path)
    first.train()
    resumed = runner(tmp_path, epochs=2, resume=True)
    resumed.train()
    assert resumed.seed == first.seed
    assert runner(tmp_path / 'other').seed != first.seed
