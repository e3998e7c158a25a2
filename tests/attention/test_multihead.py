"""Attention modules against torch's own, and with masks; with encodings: test_irpe.py."""
import math
import sys

import examples
import pytest
import torch
from helpers.tiny_backbones import randomize
from torch import nn

from mmposenc.attention import MultiheadAttention, attend
from mmposenc.attention.fast import thresholds
from mmposenc.encodings import IRPE


def test_equals_torch_multihead():
    torch.manual_seed(0)
    ours = MultiheadAttention(12, 3)
    theirs = nn.MultiheadAttention(12, 3, batch_first=True)
    theirs.load_state_dict({
        'in_proj_weight': ours.qkv.weight.detach(), 'in_proj_bias': ours.qkv.bias.detach(),
        'out_proj.weight': ours.proj.weight.detach(), 'out_proj.bias': ours.proj.bias.detach()})
    x = torch.randn(2, 15, 12)
    mask = torch.zeros(2, 15, dtype=torch.bool)
    mask[0, 9:] = True
    expected, weights = theirs(x, x, x, key_padding_mask=mask, average_attn_weights=False)
    out, ours_weights = ours(x, (3, 5), mask, need_weights=True)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(ours_weights, weights)


@pytest.mark.parametrize('bool_mask', [True, False])
def test_attn_mask(bool_mask):
    q = torch.randn(2, 3, 6, 4, dtype=torch.double)
    keep = torch.rand(6, 6) > 0.5
    keep.fill_diagonal_(True)
    mask = keep if bool_mask else torch.zeros(6, 6).masked_fill(~keep, -1e9)
    scores = (q @ q.transpose(-2, -1) / 2).masked_fill(~keep, -math.inf)
    expected = scores.softmax(-1) @ q
    torch.testing.assert_close(attend(q, q, q, attn_mask=mask)[0], expected)
    encoding = examples.relative('RelativePositionBias', (2, 3), num_heads=3).double()
    torch.nn.init.normal_(encoding.relative_position_bias_table)
    scores = scores + encoding.logits(q, q, (2, 3))
    out, weights = attend(q, q, q, encoding, (2, 3), attn_mask=mask, need_weights=True)
    torch.testing.assert_close(out, scores.softmax(-1) @ q)
    torch.testing.assert_close(weights, scores.softmax(-1))


def test_bad_input():
    module = MultiheadAttention(8, 2, num_prefix_tokens=1)
    x = torch.randn(2, 7, 8)
    with pytest.raises(ValueError, match=r'x has 7 tokens.*hw_shape=\(2, 2\).*1 \+ 2 \* 2 = 5'):
        module(x, (2, 2))
    with pytest.raises(ValueError, match='key_padding_mask has .* and dtype torch.float32'):
        module(x, (2, 3), torch.zeros(2, 7))
    with pytest.raises(ValueError, match=r'key_padding_mask has shape \(2, 6\).*\(2, 7\)'):
        module(x, (2, 3), torch.zeros(2, 6, dtype=torch.bool))
    with pytest.raises(ValueError, match=r'x_qk has shape \(2, 6, 8\)'):
        module(x, (2, 3), x_qk=x[:, :6])
    with pytest.raises(ValueError, match='embed_dims=8.*num_heads=3'):
        MultiheadAttention(8, 3)
    with pytest.raises(ValueError, match='num_prefix_tokens=-1'):
        MultiheadAttention(8, 2, num_prefix_tokens=-1)
    with pytest.raises(ValueError, match='rel_pos_encoding has num_prefix_tokens=2'):
        MultiheadAttention(8, 2, rel_pos_encoding=IRPE(4, 2, num_prefix_tokens=2))
    with pytest.raises(ValueError, match='rel_pos_encoding: Linear is no RelativeEncoding'):
        MultiheadAttention(8, 2, rel_pos_encoding=nn.Linear(1, 1))
    q = torch.randn(1, 2, 6, 4)
    with pytest.raises(ValueError, match='q_grid=None'):
        attend(q, q, q, IRPE(4, 2))
    with pytest.raises(ValueError, match=r'k has 6 tokens, but k_grid=\(2, 2\)'):
        attend(q, q, q, IRPE(4, 2), (2, 3), (2, 2))


@pytest.mark.parametrize('train', [False, True])
@pytest.mark.parametrize('name', [None, 'IRPE product qkv', 'RelativePositionBias', 'SASARPE'])
@pytest.mark.parametrize('prefix', [0, 1])
def test_padded_keys_are_left_out_where_that_pays(train, name, prefix, monkeypatch):
    """The same as masking them, gradients included; also for an image of padding alone."""
    encoding = None if name is None else examples.relative(name, (4, 5), num_prefix_tokens=prefix)
    torch.manual_seed(0)
    if encoding is not None:
        randomize(encoding.double(), 1.0)
    q, k, v = torch.randn(3, 3, 2, prefix + 20, 4, dtype=torch.float64).unbind()
    mask = torch.ones(3, 4, 5, dtype=torch.bool)
    mask[0], mask[1, :3, :2] = False, False
    mask = torch.nn.functional.pad(mask.flatten(1), (prefix, 0))
    mask[2] = True
    grid = None if encoding is None else (4, 5)
    own = [] if encoding is None else list(encoding.parameters())
    results, images = [], []
    module = sys.modules['mmposenc.attention.attend']
    original = module.parts_of_valid_keys
    monkeypatch.setattr(module, 'parts_of_valid_keys', lambda *args: images.append(
        found := original(*args)) or found)
    for least in (thresholds.LEAVE_OUT_FROM, 1):
        monkeypatch.setattr(thresholds, 'LEAVE_OUT_FROM', least)
        leaves = [x.clone().requires_grad_(train) for x in (q, k, v)]
        out, _ = attend(*leaves, encoding, grid, key_padding_mask=mask)
        results.append([out])
        if train:
            results[-1] += torch.autograd.grad(out.square().sum(), [*leaves, *own])
    assert images[0] is None and len(images[1]) == 3 and not results[1][0][2].any()
    torch.testing.assert_close(*results)


def test_padded_keys_stay_where_regions_say_which_tokens_meet(monkeypatch):
    """Regions are numbers of all tokens: those of a few keys would fit no query."""
    monkeypatch.setattr(thresholds, 'LEAVE_OUT_FROM', 1)
    q, k, v = torch.randn(3, 2, 2, 12, 4).unbind()
    padding = torch.zeros(2, 12, dtype=torch.bool)
    padding[0, 8:] = True
    options = dict(key_padding_mask=padding, regions=torch.arange(24).view(2, 12) % 3)
    torch.testing.assert_close(attend(q, k, v, **options)[0],
                               attend(q, k, v, implementation='reference', **options)[0])
