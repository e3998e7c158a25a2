"""The arithmetic of benchmarks/scale.py: against worked examples and torch's own buckets."""
from __future__ import annotations

import random

import pytest
import torch
from scripts import load_script
from torch import distributed as dist

scale = load_script('benchmarks', 'scale')
MACHINE = scale.Machine(flops=1e12, nvlink=100.0, network=10.0, latency=1.0, network_latency=5.0,
                        per_node=4, batch=2, workers=4, load=6.0)


@pytest.mark.parametrize('seed', range(20))
def test_buckets_are_those_of_distributed_data_parallel(seed: int) -> None:
    draw = random.Random(seed)
    sizes = [draw.choice([1, 64, 1000, 30_000, 500_000]) for _ in range(60)]
    tensors = [torch.empty(size, device='meta') for size in sizes]
    indices, _ = dist._compute_bucket_assignment_by_size(tensors, [2 ** 20, 4 * 2 ** 20])
    theirs = [4 * sum(sizes[i] for i in bucket) for bucket in indices]
    assert scale.bucket_bytes([4 * size for size in sizes], 2 ** 20, 4 * 2 ** 20) == theirs


@pytest.mark.parametrize('gpus, seconds', [
    (1, 0.0),
    (2, 2 / 2 * 1000 / 100 + 2 * 1.0),           # half of it there and back, one hand-over each way
    (4, 2 * 3 / 4 * 1000 / 100 + 6 * 1.0),
    (8, 2 * 7 / 8 * 1000 / 10 + 12 * 1.0 + 2 * 5.0)])  # two nodes: the network is the slowest link
def test_a_ring_by_hand(gpus: int, seconds: float) -> None:
    assert scale.all_reduce_seconds(1000.0, gpus, MACHINE) == pytest.approx(seconds)


def model(flops: float, *buckets: int):
    return scale.Model(flops, kept=7, parameters=10, buckets=buckets)


def test_messages_hide_behind_the_backward_pass_but_for_the_last() -> None:
    last = scale.all_reduce_seconds(50, 4, MACHINE)
    every = scale.all_reduce_seconds(100, 4, MACHINE) + last
    long = scale.step_seconds(model(60e12, 100, 50), 4, MACHINE)
    assert long['compute'] == 120.0 and long['exposed'] == pytest.approx(last)
    assert long['step'] == pytest.approx(120 + last) and long['messages'] == pytest.approx(every)
    short = scale.step_seconds(model(1.5e12, 100, 50), 4, MACHINE)
    assert short['exposed'] == pytest.approx(every - 2.0)  # two thirds of three seconds


def test_data_that_comes_slower_sets_the_step() -> None:
    assert scale.step_seconds(model(0.5e12, 1), 1, MACHINE)['step'] == 3.0  # 2 images, 4 workers


def test_a_training_is_its_steps() -> None:
    row = scale.training(model(60e12, 100, 50), 4, MACHINE)
    steps = 36 * 14_786  # 118,287 images by 8
    assert row['batch'] == 8 and row['steps'] == steps
    assert row['hours'] == pytest.approx(steps * row['step'] / 3600)
    assert row['gpu hours'] == pytest.approx(4 * row['hours'])
    assert row['efficiency'] == pytest.approx(120 / row['step'])
    assert scale.gpu_bytes(model(1.0, 1), 3) == 160 + 21


def test_the_inputs_are_the_configs_own() -> None:
    """Their messages hold every trained weight, in float32."""
    assert scale.INPUTS.keys() == scale.CONFIGS.keys()
    for name, config in scale.CONFIGS.items():
        built = scale._build(config)
        assert scale.INPUTS[name].parameters == sum(p.numel() for p in built.parameters())
        sizes = [4 * p.numel() for p in built.parameters() if p.requires_grad]
        assert list(scale.INPUTS[name].buckets) == scale.bucket_bytes(sizes[::-1])
