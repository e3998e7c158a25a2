"""Cosine attention against loops, mmpretrain's, itself in other forms, and in half precision."""
import math

import pytest
import torch
import torch.nn.functional as F
from tinybackbones import randomize, run

from mmposenc.attention import WindowAttention
from mmposenc.attention.cosine import CosineScale, unit

CPB = dict(type='mmposenc.LogSpacedCPB', hidden_dims=8)


def build(kind=WindowAttention, *args, encoding=CPB, largest=5.0, **options):
    module = kind(12, 3, *args, rel_pos_encoding=encoding, cosine=True,
                  **{'qkv_bias': 'qv', **options}).double()
    randomize(module, 0.4)
    scales = next(p for n, p in module.named_parameters() if n.endswith('logit_scale'))
    with torch.no_grad():  # the last is beyond the most that counts
        scales.copy_(torch.tensor([0.5, 2.0, largest]).view(3, 1, 1))
    return module


def test_against_loops():
    """Swin V2, Eq. 2: a head and a pair of tokens at a time."""
    module = build(window_size=(2, 3))
    x = torch.randn(2, 6, 12, dtype=torch.float64)
    weight, bias = module.qkv.weight, module.qkv.joint_bias()
    table = module.rel_pos_encoding.bias_map((2, 3))[0]
    expected = torch.zeros_like(x)
    for window in range(2):
        q, k, v = (x[window] @ weight.T + bias).view(6, 3, 3, 4).unbind(1)
        for head in range(3):
            scale = min(math.exp(module.cosine.logit_scale[head].item()), 100.0)
            for i in range(6):
                logits = torch.stack([
                    scale * (q[i, head] @ k[j, head]) / (q[i, head].norm() * k[j, head].norm())
                    + table[head, i, j] for j in range(6)])
                expected[window, i, 4 * head:4 * head + 4] = logits.softmax(0) @ v[:, head]
    expected = expected @ module.proj.weight.T + module.proj.bias
    torch.testing.assert_close(module(x), expected)
    assert bias[12:24].abs().sum() == 0


def test_gradcheck():
    module = CosineScale(2).double()
    q, k = (torch.randn(1, 2, 3, 4, dtype=torch.float64, requires_grad=True) for _ in 'qk')
    with torch.no_grad():
        module.logit_scale.copy_(torch.tensor([1.0, 6.0]).view(2, 1, 1))

    def angles(q, k, _):
        q, k = module(q, k)
        return q @ k.transpose(-2, -1)
    assert torch.autograd.gradcheck(angles, (q, k, module.logit_scale))
    angles(q, k, None).sum().backward()
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


def test_bfloat16_is_as_rough_as_mmpretrains():
    """At the largest scale, where rounding of queries and keys counts a hundredfold."""
    attention = pytest.importorskip('mmpretrain.models.utils.attention')
    module = WindowAttention(96, 3, 8, rel_pos_encoding=dict(type='mmposenc.LogSpacedCPB'),
                             cosine=True, qkv_bias=False)
    theirs = attention.WindowMSAV2(96, (8, 8), 3, qkv_bias=False)
    torch.manual_seed(0)
    randomize(module, 0.2)
    torch.nn.init.constant_(module.cosine.logit_scale, math.log(100.0))
    theirs.load_state_dict({
        name.replace('cosine.', '').replace('rel_pos_encoding.', ''): value
        for name, value in module.state_dict().items()}, strict=False)
    x = torch.randn(32, 64, 96)
    errors = []
    for each in (module, theirs):
        exact = run(each, x)
        with torch.autocast('cpu', torch.bfloat16):
            rough = run(each, x)
        errors.append([float((a.float() - b).square().mean() / b.square().mean()) ** 0.5
                       for a, b in zip(rough[:2], exact[:2], strict=True)])
    for own, their in zip(*errors, strict=True):
        assert own < 1.25 * their
