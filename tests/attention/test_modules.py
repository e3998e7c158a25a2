"""Attention modules: against torch's own, with masks, with convolved tokens and with cosines; grids
of spatial reduction. (With encodings and padding: encodings/test_cellwise.py; whole models:
backbones/test_timm.py, openmmlab/upstream/test_configs.py.)"""
import math

import pytest
import torch
import torch.nn.functional as F
from helpers.tiny_backbones import randomize
from torch import nn

from mmposenc.attention import (
    ConvProjectionAttention,
    MultiheadAttention,
    SpatialReductionAttention,
    attend,
)
from mmposenc.attention.cosine import CosineScale, unit
from mmposenc.backbones import DeiT
from mmposenc.encodings import IRPE


@pytest.mark.parametrize('own_qk', [False, True])
@pytest.mark.parametrize('floating', [False, True])
def test_equals_torch_multihead(floating, own_qk):
    """With padded keys and a mask of pairs; queries and keys may be of other tokens."""
    ours = MultiheadAttention(12, 3)
    theirs = nn.MultiheadAttention(12, 3, batch_first=True)
    theirs.load_state_dict({
        'in_proj_weight': ours.qkv.weight.detach(), 'in_proj_bias': ours.qkv.bias.detach(),
        'out_proj.weight': ours.proj.weight.detach(), 'out_proj.bias': ours.proj.bias.detach()})
    x, other = torch.randn(2, 2, 15, 12)
    qk = other if own_qk else x
    hidden = torch.zeros(2, 15, dtype=torch.bool)
    hidden[0, 9:] = True
    seen = torch.rand(15, 15) > 0.5
    seen[:, 0] = True
    expected, weights = theirs(qk, qk, x, key_padding_mask=hidden, attn_mask=~seen,
                               average_attn_weights=False)
    mask = torch.zeros(15, 15).masked_fill(~seen, -1e9) if floating else seen
    out, ours_weights = ours(x, (3, 5), hidden, need_weights=True, attn_mask=mask,
                             x_qk=other if own_qk else None)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(ours_weights, weights)


def test_bad_input():
    module = MultiheadAttention(8, 2, num_prefix_tokens=1)
    x, q, irpe = torch.randn(2, 7, 8), torch.randn(1, 2, 6, 4), IRPE(4, 2, num_prefix_tokens=2)
    for call, message in (
            (lambda: module(x, (2, 2)), r'x has 7 tokens.*hw_shape=\(2, 2\).*1 \+ 2 \* 2 = 5'),
            (lambda: module(x, (2, 3), torch.zeros(2, 7)), 'key_padding_mask .* torch.float32'),
            (lambda: module(x, (2, 3), torch.zeros(2, 6, dtype=torch.bool)),
             r'key_padding_mask has shape \(2, 6\).*\(2, 7\)'),
            (lambda: module(x, (2, 3), x_qk=x[:, :6]), r'x_qk has shape \(2, 6, 8\)'),
            (lambda: MultiheadAttention(8, 2, rel_pos_encoding=irpe),
             'rel_pos_encoding has num_prefix_tokens=2'),
            (lambda: attend(q, q, q, IRPE(4, 2)), 'q_grid=None'),
            (lambda: attend(q, q, q, IRPE(4, 2), (2, 3), (2, 2)),
             r'k has 6 tokens, but k_grid=\(2, 2\)')):
        with pytest.raises(ValueError, match=message):
            call()


def convolve(conv, x, grid, prefix):
    """A depthwise convolution of the grid's tokens, zeros around it."""
    maps = x[prefix:].T.unflatten(1, grid)[None]
    out = F.conv2d(maps, conv.weight, conv.bias, padding=conv.kernel_size[0] // 2, groups=len(x.T))
    return torch.cat((x[:prefix], out[0].flatten(1).T))


@pytest.mark.parametrize('own_qk', [False, True])
@pytest.mark.parametrize('grid, prefix, kernel', [((2, 3), 1, 3), ((3, 1), 0, 3), ((1, 4), 2, 5)])
def test_is_attention_of_convolved_tokens(grid, prefix, kernel, own_qk) -> None:
    """Queries and keys may be of other tokens."""
    module = ConvProjectionAttention(8, 2, kernel_size=kernel, num_prefix_tokens=prefix).double()
    x, other = torch.randn(2, prefix + grid[0] * grid[1], 8, dtype=torch.float64)
    x_qk = other if own_qk else x
    q, k, v = (convolve(conv, tokens, grid, prefix) @ module.qkv.weight[8 * i:8 * i + 8].T
               + module.qkv.bias[8 * i:8 * i + 8] for i, (conv, tokens) in enumerate((
                   (module.conv_q, x_qk), (module.conv_k, x_qk), (module.conv_v, x))))
    heads = [(q[:, h] @ k[:, h].T / math.sqrt(4)).softmax(-1) @ v[:, h]
             for h in (slice(0, 4), slice(4, 8))]
    expected = torch.cat(heads, 1) @ module.proj.weight.T + module.proj.bias
    torch.testing.assert_close(
        module(x[None], grid, x_qk=other[None] if own_qk else None)[0], expected)
    with pytest.raises(ValueError, match='x_qk has shape'):
        module(x[None], grid, x_qk=other[None, 1:])


def test_the_blocks_that_have_it() -> None:
    with torch.device('meta'):
        blocks = DeiT('tiny', conv_projection=(0,)).blocks
    assert [isinstance(block.attn, ConvProjectionAttention) for block in blocks] == [
        True] + 11 * [False]


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


def reduction(dims=6, heads=2, **options):
    return randomize(SpatialReductionAttention(dims, heads, **options), 0.5).double()


def test_key_positions_are_the_centres_of_the_cells():
    grid = reduction(sr_ratio=4).reduced_key_grid((9, 13))
    assert (grid.height, grid.width) == (2, 3)
    assert reduction(sr_ratio=4).reduced_key_grid((7, 5)).hw == (1, 1)
    assert [(i + 0.5) * grid.stride_h - 0.5 for i in range(2)] == [1.5, 5.5]


@pytest.mark.parametrize('options, call, message', [
    (dict(sr_ratio=2), ((1, 9),), r'hw_shape=\(1, 9\) is smaller than one cell'),
    (dict(sr_ratio=2), ((9, 1),), r'hw_shape=\(9, 1\) is smaller than one cell'),
    (dict(key_cells=2, rel_pos_encoding=dict(type='IRPE')), (
        (3, 3), torch.zeros(1, 3, 3, dtype=torch.bool), True), 'padding_mask and key_cells=2: ')])
def test_bad_calls_are_named(options, call, message):
    with pytest.raises(ValueError, match=message):
        reduction(**options)(torch.zeros(1, 9, 6, dtype=torch.float64), *call)
