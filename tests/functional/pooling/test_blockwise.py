"""Pooling by blocks against the definition, and its own gradients."""
import math

import pytest
import torch
from helpers.pooling_loops import make

from mmposenc.functional import context_pool
from mmposenc.functional.pooling import partition


@pytest.fixture
def small_blocks(monkeypatch):
    """Cut into many groups of queries, rectangles and rows of keys."""
    monkeypatch.setattr(partition, 'WHOLE_PAIRS', 0)
    monkeypatch.setattr(partition, 'GROUP', 16)
    monkeypatch.setattr(partition, 'REGION', 6)
    monkeypatch.setitem(partition.BLOCK_ELEMENTS, 'cpu', 700)


@pytest.mark.parametrize('absent', [0.0, 0.3])
@pytest.mark.parametrize('kernel', ['gaussian', 'window'])
@pytest.mark.parametrize('stride, causal, hw', [(1, False, (20, 13)), (2, False, (20, 13)),
                                                (3, False, (7, 31)), (1, True, (1, 300)),
                                                (2, True, (1, 301))])
@pytest.mark.usefixtures('small_blocks')
def test_values_and_gradients_of_the_definition(hw, stride, causal, kernel, absent):
    """A share of the tokens has no weight: they come back, pool nothing, and pass the gradient."""
    leaves = [each.requires_grad_() for each in make(hw)]
    x, logits, sigma = leaves
    without = torch.rand(logits.shape, generator=torch.Generator().manual_seed(1)) < absent
    outs = [context_pool(x, logits.masked_fill(without, -math.inf), sigma, hw, implementation=how,
                         causal=causal, kernel=kernel, stride=stride)
            for how in ('reference', 'exact')]
    grad = torch.randn_like(outs[0])
    grads = [torch.autograd.grad(out, leaves, grad) for out in outs]
    torch.testing.assert_close((outs[0], *grads[0]), (outs[1], *grads[1]), atol=1e-11, rtol=1e-9)
