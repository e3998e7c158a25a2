"""iRPE in PVT, where keys are pooled: their places are the centres of the cells they pool."""
import math

import pytest
import torch

from mmposenc.attention import SpatialReductionAttention
from mmposenc.backbones import PVT

SIZES = dict(embed_dims=(8, 16, 24, 32), num_layers=(1, 2, 1, 1), num_heads=(1, 2, 3, 4),
             sr_ratios=(8, 4, 2, 1), mlp_ratios=(2, 2, 2, 2))
RATIO = 1.9


def randomize(module, std=0.3):
    torch.manual_seed(0)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return module.double()


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
        rel_pos_encoding=dict(type='mmposenc.IRPE', method=method, rpe_on='qkv')))
    x = torch.randn(1, hw[0] * hw[1], 8, dtype=torch.float64)
    key_hw = [-(-n // ratio) if ceil_mode else n // ratio for n in hw]
    with torch.no_grad():
        torch.testing.assert_close(attn(x, hw), naive(attn, x, hw, key_hw))


@pytest.mark.parametrize('mode, rpe_on', [('contextual', 'qkv'), ('bias', 'k')])
@pytest.mark.parametrize('pool', [None, 'cls', 'gap'])
def test_every_table_of_every_stage_gets_a_gradient(mode, rpe_on, pool):
    model = randomize(PVT(**SIZES, pool=pool, drop_path_rate=0., rel_pos_encoding=dict(
        type='IRPE', mode=mode, rpe_on=rpe_on, shared_heads=False)))
    sum(out.square().mean() for out in
        model(torch.randn(1, 3, 64, 96, dtype=torch.float64))).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name
    tables = [name for name, _ in model.named_parameters() if 'rel_pos_encoding' in name]
    assert len(tables) == 5 * len(rpe_on)


@pytest.mark.parametrize('sizes', [[(64, 96), (37, 51)], [(90, 33), (64, 64)]], ids=str)
def test_maps_do_not_see_padding(sizes):
    model = randomize(PVT(**SIZES, mask_padding=True, drop_path_rate=0., rel_pos_encoding=dict(
        type='IRPE', rpe_on='qkv'), pos_encoding=dict(type='PEG')))
    batch = torch.randn(2, 3, 96, 96, dtype=torch.float64)
    outs = model(batch, sizes)
    for image, (h, w) in enumerate(sizes):
        for own, padded in zip(model(batch[image:image + 1, :, :h, :w]), outs, strict=True):
            torch.testing.assert_close(padded[image, :, :own.shape[2], :own.shape[3]], own[0])


def test_zero_tables_change_nothing():
    """Where they start: iRPE added to a trained PVT leaves its outputs alone."""
    plain = randomize(PVT(**SIZES)).eval()
    added = PVT(**SIZES, rel_pos_encoding=dict(type='IRPE', rpe_on='qkv')).double().eval()
    missing, unexpected = added.load_state_dict(plain.state_dict(), strict=False)
    assert not unexpected and all('rel_pos_encoding.table_' in name for name in missing)
    x = torch.randn(2, 3, 64, 96, dtype=torch.float64)
    for a, b in zip(plain(x), added(x), strict=True):
        torch.testing.assert_close(a, b)
