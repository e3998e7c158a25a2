"""FSDP2 through the tools' engine: trained by two processes, saved, resumed, stopped at NaN."""
from pathlib import Path

import pytest
import torch
from helpers.scripts import ROOT, run_python
from helpers.tiny_data import tiny_detector
from helpers.train_sharded import BAD, OPTIONS, SPREAD

from mmposenc import engine
from mmposenc.checkpoint import load_checkpoint
from mmposenc.registry import STRATEGIES

on_a_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason='processes on a CPU')
pytestmark = pytest.mark.slow


@pytest.fixture(scope='module')
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp('spread')
    run_python(ROOT / 'tests/helpers/train_sharded.py', folder)
    return folder


def assert_same(one: dict, other: dict, most: float) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert type(other[name]) is torch.Tensor, name  # no part of one
        difference = (value.double() - other[name].double()).abs().max().item()
        assert difference <= most, (name, difference)


@on_a_cpu
def test_it_trains_as_distributed_data_parallel_does(folder: Path) -> None:
    """In float32, with AdamW; its checkpoints are whole."""
    whole = load_checkpoint(folder / 'whole' / 'epoch_2.pth')
    spread = load_checkpoint(folder / 'spread' / 'epoch_2.pth')
    assert_same(whole['state_dict'], spread['state_dict'], 1e-6)
    first = load_checkpoint(folder / 'spread' / 'epoch_1.pth')['state_dict']
    moved = [(first[name] != value).any() for name, value in spread['state_dict'].items()
             if value.is_floating_point()]
    assert sum(moved) > len(moved) / 2  # it was trained


@on_a_cpu
def test_a_resumed_run_equals_one_that_was_not_interrupted(folder: Path) -> None:
    once = load_checkpoint(folder / 'spread' / 'epoch_2.pth')
    resumed = load_checkpoint(folder / 'resumed' / 'epoch_2.pth')
    assert_same(once['state_dict'], resumed['state_dict'], 0.0)
    for key, state in once['optimizer']['state'].items():
        assert_same(state, resumed['optimizer']['state'][key], 0.0)
    assert resumed['meta']['iter'] == once['meta']['iter'] == 2


@on_a_cpu
def test_a_gradient_that_is_not_finite_in_one_part_ends_both_processes(folder: Path) -> None:
    for rank in (0, 1):
        assert (folder / f'bad.status{rank}').read_text() == '3'
    before = load_checkpoint(folder / 'bad' / 'not_finite' / 'iter_2' / 'checkpoint.pth')
    assert_same(load_checkpoint(folder / 'spread' / 'epoch_1.pth')['state_dict'],
                before['state_dict'], 0.0)
    log = next((folder / 'bad').glob('*/*.log')).read_text()
    assert f'the gradient of {BAD} is not finite' in log


def test_one_process_is_refused(tmp_path: Path) -> None:
    cfg = engine.load_config(str(tiny_detector(tmp_path)))
    cfg.work_dir = str(tmp_path / 'work')
    cfg.merge_from_dict({**OPTIONS, **SPREAD, 'experiment_name': 'alone'})
    with pytest.raises(ValueError, match='FSDP2Strategy needs several processes: start it by'):
        engine.train(cfg)


@on_a_cpu
def test_slurm_on_a_cpu_is_refused() -> None:
    strategy = STRATEGIES.build(dict(type='FSDP2Strategy'))
    with pytest.raises(ValueError, match="--launcher slurm: without a GPU only 'pytorch'"):
        strategy._setup_distributed(launcher='slurm')
