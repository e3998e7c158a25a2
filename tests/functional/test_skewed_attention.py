"""Attention with vectors of the offset against the formula, however it is cut up."""
import pytest
import torch

from mmposenc.functional import skewed_attention as module


def formula(q, k, v, table, padding, scale):
    length, number = q.shape[1], q.shape[0]
    offset = torch.arange(length) - torch.arange(length)[:, None] + length - 1
    vectors = table[torch.arange(number) % len(table)][:, offset]  # (N, L, L, d)
    logits = (q @ k.transpose(1, 2) + torch.einsum('nid,nijd->nij', q, vectors)) * scale
    if padding is not None:
        logits = logits.masked_fill(padding[:, None], float('-inf'))
    return logits.softmax(-1) @ v


@pytest.mark.parametrize('length', [1, 2, 7])
@pytest.mark.parametrize('rows,elements', [(1, 1), (3, 40), (7, 10 ** 6)])
@pytest.mark.parametrize('heads', [1, 2])
@pytest.mark.parametrize('keep', [True, False])
def test_equals_formula(length, rows, elements, heads, keep, monkeypatch):
    monkeypatch.setattr(module, 'QUERIES', rows)
    monkeypatch.setattr(module, 'CHUNK_ELEMENTS', elements)
    monkeypatch.setattr(module, 'KEEP_PAIRS', 10 ** 6 if keep else 0)
    torch.manual_seed(0)
    leaves = [torch.randn(4, length, 3, dtype=torch.double, requires_grad=True) for _ in range(3)]
    leaves.append(torch.randn(heads, 2 * length - 1, 3, dtype=torch.double, requires_grad=True))
    padding = torch.rand(4, length) > 0.6
    padding[:, 0] = False
    for mask in (None, padding):
        out = module.skewed_attention(*leaves, padding=mask, scale=0.7)
        expected = formula(*leaves, mask, 0.7)
        torch.testing.assert_close(out, expected)
        grad = torch.randn_like(out)
        for ours, other in zip(torch.autograd.grad(out, leaves, grad),
                               torch.autograd.grad(expected, leaves, grad), strict=True):
            torch.testing.assert_close(ours, other)


def test_gradcheck():
    leaves = [torch.randn(2, 5, 2, dtype=torch.double, requires_grad=True) for _ in range(3)]
    leaves.append(torch.randn(1, 9, 2, dtype=torch.double, requires_grad=True))
    assert torch.autograd.gradcheck(lambda *x: module.skewed_attention(*x, scale=0.5), leaves)
