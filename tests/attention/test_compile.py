"""torch.compile and torch.export of attention modules."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from mmposenc.attention import MultiheadAttention

CONFIGS = [
    dict(type='IRPE', method='product', rpe_on='qkv'),
    *(pytest.param(config, marks=pytest.mark.slow) for config in (
        None,
        dict(type='IRPE', method='cross', rpe_on='q'),
        dict(type='IRPE', method='euclidean', rpe_on='k'),
        dict(type='IRPE', method='quantization', quantization='rank', rpe_on='kv'),
        dict(type='IRPE', mode='bias', rpe_on='qk')))]


def make(config):
    torch.manual_seed(0)
    module = MultiheadAttention(16, 2, rel_pos_encoding=config, num_prefix_tokens=1)
    if module.rel_pos_encoding is not None:
        for table in module.rel_pos_encoding.parameters():
            torch.nn.init.normal_(table)
    return module


@pytest.fixture(autouse=True)
def reset():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize('config', CONFIGS)
def test_compile_fixed_shape(config):
    """In one graph, forward and backward; the same numbers."""
    module = make(config)
    counter = CompileCounterWithBackend('aot_eager')
    compiled = torch.compile(module, fullgraph=True, backend=counter)
    x = torch.randn(2, 21, 16, requires_grad=True)
    leaves = [x, *module.parameters()]
    out, expected = compiled(x, (4, 5)), module(x, (4, 5))
    torch.testing.assert_close(out, expected)
    for ours, other in zip(torch.autograd.grad(out.square().sum(), leaves),
                           torch.autograd.grad(expected.square().sum(), leaves), strict=True):
        torch.testing.assert_close(ours, other, atol=1e-5, rtol=1e-4)
    compiled(x, (4, 5))
    assert counter.frame_count == 1
