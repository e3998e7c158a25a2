"""DistributedDataParallel never has to look for unused parameters, and its other options hold: one
tiny model of every family, in two processes."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from wrapped_training import FAMILIES, WRAPPERS

from mmposenc.engine.training.processes import GradientCheckHook, join_on_a_cpu

TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture(scope='module')
def found(tmp_path_factory) -> dict[str, dict]:
    if torch.cuda.is_available():
        pytest.skip('processes on a CPU')
    folder = tmp_path_factory.mktemp('wrapped')
    run = subprocess.run(
        [sys.executable, TESTS / 'wrapped_training.py', str(folder)], text=True,
        capture_output=True, timeout=600,
        env={**os.environ, 'PYTHONPATH': f'{TESTS.parent}:{TESTS}', 'OMP_NUM_THREADS': '1'})
    assert run.returncode == 0, run.stderr[-3000:]
    return torch.load(folder / 'wrapped.pt')


@pytest.mark.slow
@pytest.mark.parametrize('options', WRAPPERS)
@pytest.mark.parametrize('name', FAMILIES)
def test_gradients_are_the_mean_of_what_each_process_finds(found, name: str, options: str) -> None:
    """In float32, against gradients taken without the wrapper and added up by hand."""
    assert found[name][options] <= 1e-6


@pytest.mark.slow
def test_accumulated_gradients_may_be_views_of_the_messages(found) -> None:
    assert found['accumulated']['moved'] > 1e-4 and found['accumulated']['apart'] <= 1e-7


def test_a_static_graph_with_accumulated_gradients_is_refused() -> None:
    """torch 2.13 ends in an internal assertion there."""
    runner = SimpleNamespace(model=SimpleNamespace(static_graph=True),
                             optim_wrapper=SimpleNamespace(_accumulative_counts=4))
    with pytest.raises(ValueError, match='static_graph=True with optim_wrapper.accumulative_counts='
                                         '4: '):
        GradientCheckHook().before_train(runner)


@pytest.mark.parametrize('timeout, seconds', [(None, None), (90, 90.0)])
def test_the_time_limit_of_the_config_holds_on_a_cpu(monkeypatch, timeout, seconds) -> None:
    asked = {}
    monkeypatch.setattr(torch.distributed, 'init_process_group',
                        lambda backend, timeout: asked.update({backend: timeout}))
    join_on_a_cpu('pytorch', timeout)
    assert (asked['gloo'] and asked['gloo'].total_seconds()) == seconds


@pytest.mark.parametrize('timeout', [0, -1, '10 min'])
def test_a_wrong_time_limit_is_refused(timeout) -> None:
    with pytest.raises(ValueError, match='env_cfg.dist_cfg.timeout=.* must be seconds, above 0'):
        join_on_a_cpu('pytorch', timeout)
