"""Cosine attention's scales, zeros and half precision. (Against mmpretrain's and timm's models:
tests/backbones.)"""
import pytest
import torch
import torch.nn.functional as F

from mmposenc.attention.cosine import CosineScale, unit


def test_the_scale_is_at_most_100_and_passes_no_gradient_beyond():
    module = CosineScale(2).double()
    q, k = torch.randn(2, 1, 2, 3, 4, dtype=torch.float64)
    with torch.no_grad():
        module.logit_scale.copy_(torch.tensor([1.0, 6.0]).view(2, 1, 1))
    scaled, keys = module(q, k)
    scaled = scaled * 4 ** -0.5  # as attention does
    torch.testing.assert_close((scaled @ keys.mT)[:, 1], 100 * F.cosine_similarity(
        q[:, 1, :, None], k[:, 1, None], dim=-1))
    scaled.sum().backward()
    assert module.logit_scale.grad[0] != 0 and module.logit_scale.grad[1] == 0


def test_a_vector_of_zeros_stays_zero_and_passes_no_gradient():
    x = torch.tensor([[0.0, 0.0], [3.0, -4.0]], requires_grad=True)
    out = unit(x)
    torch.testing.assert_close(out, F.normalize(x, dim=-1))
    (out * torch.tensor([[1.0, 2.0], [1.0, 2.0]])).sum().backward()
    assert x.grad[0].tolist() == [0.0, 0.0] and x.grad[1].abs().sum() > 0


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_lengths_are_taken_in_float32(dtype):
    """Squares of 300 are no numbers of float16, and 1000 of them are no sum of bfloat16."""
    x = torch.full((2, 1000), 300.0, dtype=dtype)
    torch.testing.assert_close(unit(x), F.normalize(x.float(), dim=-1), rtol=0, atol=0)
    q, k = CosineScale(1)(x[None, None], x[None, None])
    assert q.dtype == k.dtype == dtype and k.isfinite().all()
