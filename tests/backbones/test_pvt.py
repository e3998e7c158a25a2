"""What is PVT's own: its sizes, reductions of keys, class token and the loop of iRPE over them."""
import math

import pytest
import torch
from tinybackbones import randomize

from mmposenc.attention import SpatialReductionAttention
from mmposenc.backbones import PVT
from mmposenc.backbones.layers import DropPath

SIZES = dict(embed_dims=(8, 16, 24, 32), num_layers=(1, 2, 1, 1), num_heads=(1, 2, 3, 4),
             sr_ratios=(8, 4, 2, 1), mlp_ratios=(2, 2, 2, 2))
LEARNED = dict(type='mmposenc.LearnedPositionEmbedding', interpolation='bilinear')
RATIO = 1.9


def count(model):
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize('arch, peg_gap, plain', [
    ('tiny', 12_849_640, 13_229_288), ('small', 24_106_216, 24_485_864),
    ('medium', 43_828_456, 44_208_104)])
def test_parameter_counts(arch, peg_gap, plain):
    head = 512 * 1000 + 1000
    with torch.device('meta'):
        assert count(PVT(arch, pos_encoding=dict(type='PEG'), pool='gap')) + head == peg_gap
        assert count(PVT(arch, pos_encoding=LEARNED, pool='cls')) + head == plain


def test_batch_norm_does_not_see_how_much_padding_there_is():
    sizes, outs, stats = [(64, 40), (32, 70)], [], []
    images = [torch.randn(3, h, w, dtype=torch.float64) for h, w in sizes]
    for padded in ((64, 96), (128, 128)):
        model = randomize(PVT(**SIZES, mask_padding=True, drop_path_rate=0.0, pos_encoding=dict(
            type='PEG', norm_act=True, bias=False))).double().train()
        batch = torch.randn(2, 3, *padded, dtype=torch.float64)
        for image, (h, w) in enumerate(sizes):
            batch[image, :, :h, :w] = images[image]
        outs.append(model(batch, sizes))
        stats.append({k: v for k, v in model.state_dict().items() if 'running' in k})
    for a, b in zip(*outs, strict=True):
        torch.testing.assert_close(a, b[..., :a.shape[2], :a.shape[3]])
    for key, value in stats[0].items():
        torch.testing.assert_close(value, stats[1][key])


def test_drop_path_drops_images_and_keeps_the_mean():
    torch.manual_seed(0)
    out = DropPath(0.25)(torch.ones(4000, 2, 3))
    assert set(out.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert out.mean().item() == pytest.approx(1, abs=0.03)
    assert (out == out[:, :1, :1]).all()
    x = torch.ones(3, 2)
    assert DropPath(0.25).eval()(x) is x
    with pytest.raises(ValueError, match=r'drop_prob=1.0 must be in \[0, 1\)'):
        DropPath(1.0)


def test_small_images_are_named():
    model = PVT(**SIZES)
    with pytest.raises(ValueError, match='an image of 3x64 is smaller than the patch of 4x4'):
        model(torch.zeros(1, 3, 3, 64))
    with pytest.raises(ValueError, match='smaller than one'):
        model(torch.zeros(1, 3, 8, 64))  # reaches a reduction that its grid cannot fill


def piecewise(x, alpha=RATIO, beta=2 * RATIO, gamma=8 * RATIO):
    """iRPE, Eq. 18, with the release's order: round, clip, truncate."""
    if abs(x) <= alpha:
        steps = round(abs(x))
    else:
        steps = min(beta, round(alpha + math.log(abs(x) / alpha) / math.log(gamma / alpha)
                                * (beta - alpha)))
    return int(math.copysign(steps, x))


def bucket(method, row, col):
    """Buckets of an offset, one or two."""
    middle = int(2 * RATIO)
    if method == 'product':
        return [(piecewise(row) + middle) * (2 * middle + 1) + piecewise(col) + middle]
    if method == 'cross':
        return [piecewise(row) + middle, piecewise(col) + middle]
    return [piecewise(round(math.hypot(row, col))) + middle]


def naive(attn, x, hw, key_hw):
    """Every query, key and head in a loop."""
    (height, width), ratio, irpe = hw, attn.sr_ratio, attn.rel_pos_encoding
    grid = x.new_zeros(x.shape[0], x.shape[2], key_hw[0] * ratio, key_hw[1] * ratio)
    fitting = x.transpose(1, 2).unflatten(2, hw)[:, :, :grid.shape[2], :grid.shape[3]]
    grid[:, :, :fitting.shape[2], :fitting.shape[3]] = fitting
    reduced = attn.norm(attn.sr(grid).flatten(2).transpose(1, 2)) if ratio > 1 else x
    heads, dims = attn.num_heads, x.shape[2] // attn.num_heads
    q = attn.q(x).unflatten(2, (heads, dims))
    k, v = attn.kv(reduced).unflatten(2, (2, heads, dims)).unbind(2)
    centres = [((r + 0.5) * ratio - 0.5, (c + 0.5) * ratio - 0.5)
               for r in range(key_hw[0]) for c in range(key_hw[1])]
    out = torch.zeros_like(q)
    for b in range(x.shape[0]):
        for h in range(heads):
            for i in range(height * width):
                row, col = divmod(i, width)
                logits, terms = [], []
                for j, (key_row, key_col) in enumerate(centres):
                    there = bucket(irpe.method, row - key_row, col - key_col)
                    back = bucket(irpe.method, key_row - row, key_col - col)
                    query, key = q[b, i, h] * dims ** -0.5, k[b, j, h]
                    logit, term = query @ key, v[b, j, h]
                    for axis, (to_key, to_query) in enumerate(zip(there, back, strict=True)):
                        logit = logit + query @ irpe.tables('k')[axis][0, :, to_key]
                        logit = logit + key @ irpe.tables('q')[axis][0, :, to_query] * dims ** -0.5
                        term = term + irpe.tables('v')[axis][0, to_key]
                    logits.append(logit)
                    terms.append(term)
                out[b, i, h] = torch.stack(logits).softmax(0) @ torch.stack(terms)
    return attn.proj(out.flatten(2))


@pytest.mark.parametrize('method', ['product', 'cross', 'euclidean'])
@pytest.mark.parametrize('hw, ratio, ceil_mode', [
    ((6, 4), 2, False), ((7, 5), 2, True), ((7, 5), 3, False), ((4, 9), 4, True),
    ((1, 6), 1, False)])
def test_equals_a_loop_over_queries_and_keys(method, hw, ratio, ceil_mode):
    attn = randomize(SpatialReductionAttention(
        8, 2, sr_ratio=ratio, ceil_mode=ceil_mode,
        rel_pos_encoding=dict(type='mmposenc.IRPE', method=method, rpe_on='qkv')), 0.3).double()
    x = torch.randn(1, hw[0] * hw[1], 8, dtype=torch.float64)
    key_hw = [-(-n // ratio) if ceil_mode else n // ratio for n in hw]
    with torch.no_grad():
        torch.testing.assert_close(attn(x, hw), naive(attn, x, hw, key_hw))
