"""Attention with row and column terms in pieces of any size."""
import pytest
import torch

from mmposenc.functional import axis_attention as module


def explicit(q, k, v, rows, cols, key_term, padding, p):
    terms = (rows[..., :, None] + cols[..., None, :]).flatten(4, 5).flatten(2, 3)
    logits = q @ k.transpose(-2, -1) + torch.nn.functional.pad(terms, (p, 0, p, 0))
    logits = logits + key_term[:, :, None]
    return logits.masked_fill(padding[:, None, None], float('-inf')).softmax(-1) @ v


@pytest.mark.parametrize('chunk', [1, 30, 100, 10_000])
@pytest.mark.parametrize('keep', [0, 10_000])
@pytest.mark.parametrize('p', [0, 2])
@pytest.mark.parametrize('key_batch', [1, 2])
def test_equals_explicit(monkeypatch, chunk, keep, p, key_batch):
    monkeypatch.setattr(module, 'CHUNK_ELEMENTS', chunk)
    monkeypatch.setattr(module, 'KEEP_PAIRS', keep)
    torch.manual_seed(0)
    shapes = [(2, 3, p + 8, 4), (2, 3, p + 15, 4), (2, 3, p + 15, 4), (2, 3, 2, 4, 3),
              (2, 3, 2, 4, 5), (key_batch, 3, p + 15)]
    leaves = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]
    padding = torch.zeros(2, p + 15, dtype=torch.bool)
    padding[1, p + 7:] = True
    expected = explicit(*leaves, padding, p)
    grad = torch.randn_like(expected)
    expected_grads = torch.autograd.grad(expected, leaves, grad)
    for form in ('chunked', 'channels'):
        got = module.axis_attention(*leaves, padding, p, form=form)
        torch.testing.assert_close(got, expected)
        for one, other in zip(torch.autograd.grad(got, leaves, grad), expected_grads, strict=True):
            torch.testing.assert_close(one, other)
