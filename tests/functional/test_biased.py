"""Attention with a trained bias against the formula, for every way it is cut up."""
import pytest
import torch

from mmposenc.attention import MultiheadAttention
from mmposenc.encodings import RelativeEncoding
from mmposenc.functional import biased
from mmposenc.functional.biased import biased_attention


@pytest.mark.parametrize('elements', [1, 20, 50, 100, 10 ** 6])
@pytest.mark.parametrize('keep', [True, False])
@pytest.mark.parametrize('shape', [(1, 1), (1, 3), (2, 3), (4, 1), (4, 3)])
def test_equals_formula(elements, keep, shape, monkeypatch):
    """Images whole, some heads, and some query rows at a time; biases that repeat over images."""
    monkeypatch.setattr(biased, 'CHUNK_ELEMENTS', elements)
    monkeypatch.setattr(biased, 'KEEP_PAIRS', 10 ** 9 if keep else 0)
    torch.manual_seed(0)
    q, k, v, bias = leaves = [
        torch.randn(size, dtype=torch.double, requires_grad=True)
        for size in ((4, 3, 5, 2), (4, 3, 4, 2), (4, 3, 4, 2), (*shape, 5, 4))]
    hidden = torch.rand(5, 4) > 0.7
    hidden[:, 0] = False
    masked = bias.masked_fill(hidden, float('-inf'))
    out = biased_attention(q, k, v, masked)
    weights = (q @ k.transpose(-2, -1) + masked.repeat(4 // shape[0], 1, 1, 1)).softmax(-1)
    expected = weights @ v
    torch.testing.assert_close(out, expected)
    grad = torch.randn_like(out)
    for ours, other in zip(torch.autograd.grad(out, leaves, grad, retain_graph=True),
                           torch.autograd.grad(expected, leaves, grad), strict=True):
        torch.testing.assert_close(ours, other)


def test_gradcheck():
    leaves = [torch.randn(size, dtype=torch.double, requires_grad=True)
              for size in ((2, 2, 3, 2), (2, 2, 4, 2), (2, 2, 4, 2), (1, 2, 3, 4))]
    assert torch.autograd.gradcheck(biased_attention, leaves)


def test_batch_that_does_not_divide():
    q = torch.randn(3, 1, 2, 2)
    with pytest.raises(ValueError, match='bias has 2 in its first dimension.*batch of 3'):
        biased_attention(q, q, q, torch.zeros(2, 1, 2, 2))


def test_attention_uses_it_and_agrees(monkeypatch):
    """A trained bias of a large grid takes this path; its numbers are those of the plain one."""
    from mmposenc.attention import core

    class Bias(RelativeEncoding):
        contextual = False

        def __init__(self):
            super().__init__()
            self.table = torch.nn.Parameter(torch.randn(1, 2, 140, 140))

        def logits(self, q, k, q_grid, k_grid=None):
            return self.table

    torch.manual_seed(0)
    module = MultiheadAttention(8, 2, rel_pos_encoding=Bias())
    x = torch.randn(2, 140, 8, requires_grad=True)
    mask = torch.zeros(2, 140, dtype=torch.bool)
    mask[1, 100:] = True
    calls = []
    monkeypatch.setattr(core, 'biased_attention',
                        lambda *args: calls.append(1) or biased_attention(*args))
    out = module(x, (10, 14), mask)
    assert calls
    expected, _ = module(x, (10, 14), mask, need_weights=True)
    torch.testing.assert_close(out, expected)
    leaves = [x, *module.parameters()]
    for ours, other in zip(torch.autograd.grad(out.square().sum(), leaves),
                           torch.autograd.grad(expected.square().sum(), leaves), strict=True):
        torch.testing.assert_close(ours, other, atol=1e-5, rtol=1e-4)
