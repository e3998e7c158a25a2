"""ContextPool as a token encoding: options, sequences, precision, backbones. Padding and gradients:
test_cellwise.py and test_examples.py."""
import math

import examples
import pytest
import torch
import torch.nn.functional as F
from helpers.pooling_loops import loop
from helpers.tiny_backbones import randomize
from torch import nn

from mmposenc.encodings import ContextPool
from mmposenc.functional import context_pool
from mmposenc.functional.extents import extents_to_mask
from mmposenc.functional.pooling import kernels


def build(**options):
    module = ContextPool(8, **options).double()
    randomize(module, 0.5)
    return module


@pytest.mark.parametrize('hw', [(3, 4), (1, 5), (4, 1)])
def test_is_the_papers_formula(hw):
    """(w, s) by two convolutions, sigma = r s (H + W) / 2, then the weighted mean."""
    module = build(ratio=0.5)
    x = torch.randn(2, hw[0] * hw[1], 8, dtype=torch.float64)
    maps = x.mT.unflatten(2, hw)
    for conv, act in ((module.predictor.conv1, F.gelu), (module.predictor.conv2, nn.Identity())):
        maps = act(F.conv2d(maps, conv.weight, conv.bias, padding=1))
    w, s = maps.flatten(2).unbind(1)
    torch.testing.assert_close(module(x, hw), context_pool(
        x, w, 0.5 * s.sigmoid() * sum(hw) / 2, hw, implementation='reference'))


@pytest.mark.parametrize('options', [o for o in examples.POOLS.values() if o.get('causal')],
                         ids=str)
def test_causal_tokens_do_not_see_what_comes_later(options):
    module = build(**options)
    x = torch.randn(1, 12, 8, dtype=torch.float64, requires_grad=True)
    out = module(x, (3, 4))
    for i in (0, 5, 11):
        grad, = torch.autograd.grad(out[0, i].sum(), x, retain_graph=True)
        assert not grad[0, i + 1:].any() and grad[0, i].any()
        if i and options.get('locality') != 'fixed_window':
            assert grad[0, :i].any()


def test_one_dimension_is_the_sequence():
    module = build(dims=1, ratio=0.3)
    x = torch.randn(1, 12, 8, dtype=torch.float64)
    torch.testing.assert_close(module(x, (3, 4)), module(x, (1, 12)))
    logits, sigma = module.predict(x, (3, 4))
    assert 0 < float(sigma.min()) and float(sigma.max()) < 0.3 * 12
    torch.testing.assert_close(module(x, (3, 4)), context_pool(x, logits, sigma, (1, 12)))


@pytest.mark.parametrize('options', [dict(), dict(locality='fixed_window'),
                                     dict(weights='nonlocal')], ids=str)
def test_stride_shrinks_the_grid(options):
    module, every = build(stride=2, **options), build(**options)
    x = torch.randn(2, 1 + 35, 8, dtype=torch.float64)
    mask = extents_to_mask([(5, 7), (3, 4)], (5, 7), torch.device('cpu')).cells
    out = module(x, (5, 7), num_prefix_tokens=1, padding_mask=mask)
    full = every(x, (5, 7), num_prefix_tokens=1, padding_mask=mask)
    assert module.out_hw_shape((5, 7)) == (3, 4) and module.out_hw_shape((1, 1)) == (1, 1)
    torch.testing.assert_close(out[:, 1:].view(2, 3, 4, 8),
                               full[:, 1:].view(2, 5, 7, 8)[:, ::2, ::2])
    assert torch.equal(module.out_padding_mask(mask), mask[:, ::2, ::2])
    assert module.out_padding_mask(None) is None


def test_sizes():
    """sigma is r s (H + W) / 2; a softmax over the tokens leaves almost nothing of it."""
    x = torch.randn(2, 12 * 20, 8, dtype=torch.float64)
    start = ContextPool(8).double().predict(x, (12, 20)).sigma
    torch.testing.assert_close(start, torch.full_like(start, 0.1 * 0.5 * 16), rtol=0.1, atol=0)
    sums = build(ratio=0.2, size_norm='softmax').predict(x, (12, 20)).sigma.sum(1)
    torch.testing.assert_close(sums, torch.full_like(sums, 0.2 * 16))
    torch.testing.assert_close(ContextPool(8, size_norm='softmax').double()(x, (12, 20)), x)


def test_weights():
    """Learned weights are a mean's; unnormalized ones scale the output; uniform ones are 1."""
    x = torch.ones(1, 12, 8, dtype=torch.float64)
    torch.testing.assert_close(build()(x, (3, 4)), x)
    torch.testing.assert_close(build(weights='uniform')(x, (3, 4)), x)
    module = build(weights='unnormalized')
    factors = 2 * module.predict(x, (3, 4)).weight_logits.sigmoid()
    out = module(x, (3, 4))
    assert not torch.allclose(out, x)
    assert float(factors.min()) <= float(out.min()) and float(out.max()) <= float(factors.max())


@pytest.mark.parametrize('hw, side', [((4, 5), 3), ((1, 7), 5), ((6, 1), 1), ((3, 4), None)])
def test_fixed_windows_and_the_mean_of_all_tokens(hw, side):
    module = build(locality='none') if side is None else build(
        locality='fixed_window', window_size=side)
    x = torch.randn(2, hw[0] * hw[1], 8, dtype=torch.float64)
    logits = module.predict(x, hw).weight_logits
    sizes = torch.full_like(logits, 99 if side is None else side // 2)
    torch.testing.assert_close(module(x, hw), loop(x, logits, sizes, hw, 'window'))


@pytest.mark.parametrize('pairs', [2 ** 20, 40])
@pytest.mark.parametrize('locality', ['gaussian', 'adaptive_window'])
def test_weights_by_pairs_in_loops(locality, pairs, monkeypatch):
    """Eq. 3 with projections of C to C, times the kernel; all pairs at once, or some."""
    monkeypatch.setattr(kernels, 'STABLE_PAIRS', pairs)
    module = build(weights='nonlocal', ratio=0.5, locality=locality)
    assert module.query_key.weight.shape == (2 * 8, 8)
    assert ContextPool(8, weights='nonlocal', nonlocal_dims=2).query_key.weight.shape == (4, 8)
    x = torch.randn(1, 12, 8, dtype=torch.float64)
    sigma, kernel = module.predict(x, (3, 4)).sigma, 'gaussian'
    if locality == 'adaptive_window':
        sigma, kernel = sigma * math.sqrt(3), 'window'
    theta, phi = F.linear(x, module.query_key.weight, module.query_key.bias).chunk(2, -1)
    out = module(x, (3, 4))
    for i in range(12):
        logits = (theta[:, i:i + 1] * phi).sum(-1) / math.sqrt(8)
        torch.testing.assert_close(out[:, i], loop(x, logits, sigma, (3, 4), kernel)[:, i])
