"""The arithmetic of benchmarks/scale.py: against worked examples and torch's own buckets."""
from __future__ import annotations

import random

import pytest
import torch
from scripts import load_script
from torch import distributed as dist

scale = load_script('benchmarks', 'scale')


@pytest.mark.parametrize('seed', range(20))
def test_buckets_are_those_of_distributed_data_parallel(seed: int) -> None:
    draw = random.Random(seed)
    sizes = [draw.choice([1, 64, 1000, 30_000, 500_000]) for _ in range(60)]
    tensors = [torch.empty(size, device='meta') for size in sizes]
    indices, _ = dist._compute_bucket_assignment_by_size(tensors, [2 ** 20, 4 * 2 ** 20])
    theirs = [4 * sum(sizes[i] for i in bucket) for bucket in indices]
    assert scale.bucket_bytes([4 * size for size in sizes], 2 ** 20, 4 * 2 ** 20) == theirs


def test_the_inputs_are_the_configs_own() -> None:
    """Their messages hold every trained weight, in float32."""
    assert scale.INPUTS.keys() == scale.CONFIGS.keys()
    for name, config in scale.CONFIGS.items():
        built = scale._build(config)
        assert scale.INPUTS[name].parameters == sum(p.numel() for p in built.parameters())
        sizes = [4 * p.numel() for p in built.parameters() if p.requires_grad]
        assert list(scale.INPUTS[name].buckets) == scale.bucket_bytes(sizes[::-1])
