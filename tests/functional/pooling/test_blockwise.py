"""Pooling by blocks against the definition, and its own gradients."""

import pytest
import torch
from helpers.pooling_loops import loop, make

from mmposenc.functional import context_pool
from mmposenc.functional.pooling import partition
from mmposenc.functional.pooling.blockwise import pool_in_blocks


@pytest.fixture
def small_blocks(monkeypatch):
    """Cut into many groups of queries, rectangles and rows of keys."""
    monkeypatch.setattr(partition, 'WHOLE_PAIRS', 0)
    monkeypatch.setattr(partition, 'GROUP', 16)
    monkeypatch.setattr(partition, 'REGION', 6)
    monkeypatch.setitem(partition.BLOCK_ELEMENTS, 'cpu', 700)


@pytest.mark.parametrize('kernel', ['gaussian', 'window'])
@pytest.mark.parametrize('stride, causal, hw', [(1, False, (20, 13)), (2, False, (20, 13)),
                                                (3, False, (7, 31)), (1, True, (1, 300)),
                                                (2, True, (1, 301))])
@pytest.mark.usefixtures('small_blocks')
def test_values_and_gradients_of_the_definition(hw, stride, causal, kernel):
    leaves = [each.requires_grad_() for each in make(hw)]
    outs = [context_pool(*leaves, hw, implementation=how, causal=causal, kernel=kernel,
                         stride=stride)
            for how in ('reference', 'exact')]
    grad = torch.randn_like(outs[0])
    grads = [torch.autograd.grad(out, leaves, grad) for out in outs]
    torch.testing.assert_close((outs[0], *grads[0]), (outs[1], *grads[1]), atol=1e-11, rtol=1e-9)


@pytest.mark.usefixtures('small_blocks')
def test_tokens_without_weight():
    """They come back, pool nothing, and pass the gradient through."""
    hw = (9, 11)
    x, logits, sigma = make(hw)
    weights = torch.where(torch.rand(2, 99, generator=torch.Generator().manual_seed(1)) < 0.3,
                          0, logits.exp() / 20)
    out = pool_in_blocks(x.requires_grad_(), weights, sigma, hw, 'gaussian', False, 40.0)
    without = weights == 0
    assert 20 < int(without.sum()) and torch.equal(out[without], x[without])
    expected = loop(x, weights.log(), sigma, hw)
    torch.testing.assert_close(out[~without], expected[~without])
    grad, = torch.autograd.grad(out.sum(), x)
    assert torch.equal(grad[without], torch.ones_like(grad[without]))
