"""Context pooling against loops over pairs of tokens from the paper's formula; by blocks against
the definition, with its own gradients; and what it is compared with."""
import math

import pytest
import torch
import torch.nn.functional as F
from helpers.pooling_loops import GRIDS, loop, make

from mmposenc.functional import context_pool
from mmposenc.functional.pooling import kernels, partition
from mmposenc.functional.pooling.ablations import random_mean, window_mean

IMPLEMENTATIONS = ('reference', 'exact')


@pytest.mark.parametrize('hw, how, options', [
    *((hw, how, dict(kernel=kernel)) for hw in GRIDS for how in IMPLEMENTATIONS
      for kernel in ('gaussian', 'window')),
    *(((1, 9), how, dict(causal=True)) for how in IMPLEMENTATIONS)])
def test_equals_the_loop(hw, how, options):
    inputs = make(hw)
    expected = loop(*inputs, hw, **options)
    torch.testing.assert_close(context_pool(*inputs, hw, implementation=how, **options), expected,
                               atol=1e-12, rtol=1e-12)


def test_definition_can_be_differentiated_twice():
    leaves = [each.requires_grad_() for each in make((2, 3), batch=1, channels=2)]
    assert torch.autograd.gradgradcheck(
        lambda *a: context_pool(*a, (2, 3), implementation='reference'), leaves)


@pytest.mark.parametrize('dtype', [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize('how', IMPLEMENTATIONS)
def test_no_size_is_the_identity_and_no_limit_the_mean(how, dtype):
    x, logits, _ = make((6, 7), spread=3.0)
    x, logits = x.to(dtype).requires_grad_(), logits.to(dtype).requires_grad_()
    for value in (0.0, 1e-7, 1e4, math.inf):
        sigma = torch.full_like(logits, value).requires_grad_()
        out = context_pool(x, logits, sigma, (6, 7), implementation=how)
        grads = torch.autograd.grad(out.float().square().sum(), (x, logits, sigma))
        assert out.dtype == dtype and all(bool(g.isfinite().all()) for g in grads)
        if value < 1:
            torch.testing.assert_close(out, x, rtol=4 * torch.finfo(dtype).eps, atol=0)
            assert max(float(g.abs().max()) for g in grads[1:]) < 1e-5
        else:
            mean = logits.double().softmax(1)[:, None] @ x.double()
            torch.testing.assert_close(out.double(), mean.expand_as(x),
                                       atol=1e-3 if dtype.itemsize == 2 else 1e-6,
                                       rtol=1e-2 if dtype.itemsize == 2 else 1e-5)


@pytest.mark.parametrize('spread', [20.0, 200.0])
@pytest.mark.parametrize('how', IMPLEMENTATIONS)
def test_weights_far_apart(how, spread):
    """Neighbours of e^100 or e^1000 times the weight: as factors they would leave 0 / 0."""
    x, logits, sigma = make((4, 5), spread=spread)
    assert (40 if spread == 20 else 300) < float(logits.amax() - logits.amin())
    expected = context_pool(x, logits, sigma, (4, 5), implementation='reference')
    leaves = [each.float().requires_grad_() for each in (x, logits, sigma)]
    out = context_pool(*leaves, (4, 5), implementation=how)
    torch.testing.assert_close(out.double(), expected, atol=1e-4, rtol=1e-4)
    grads = torch.autograd.grad(out.square().sum(), leaves)
    assert all(bool(g.isfinite().all()) for g in grads)
    tiny = torch.full_like(sigma, 1e-3).float()
    torch.testing.assert_close(context_pool(leaves[0], leaves[1], tiny, (4, 5), implementation=how),
                               leaves[0])


@pytest.mark.parametrize('rows', [1, 7])
def test_far_apart_weights_are_cut_into_rows(rows, monkeypatch):
    monkeypatch.setattr(kernels, 'STABLE_PAIRS', 20 * rows)
    leaves = [each.requires_grad_() for each in make((4, 5), spread=200.0)]
    outs = [context_pool(*leaves, (4, 5), implementation=how) for how in IMPLEMENTATIONS]
    grads = [torch.autograd.grad(out.square().sum(), leaves) for out in outs]
    torch.testing.assert_close((outs[0], *grads[0]), (outs[1], *grads[1]))


@pytest.mark.parametrize('how', IMPLEMENTATIONS)
def test_tokens_without_weight_take_no_part_and_come_back(how):
    x, logits, sigma = make((4, 6))
    out_of = torch.zeros(2, 4, 6, dtype=torch.bool)
    out_of[1, 3:] = out_of[1, :, 4:] = True
    masked = logits.masked_fill(out_of.flatten(1), -math.inf)
    x.requires_grad_()
    out = context_pool(x, masked, sigma, (4, 6), implementation=how)
    part = [each[1:].view(1, 4, 6, -1)[:, :3, :4].flatten(1, 2) for each in (x, logits, sigma)]
    alone = context_pool(part[0], part[1][..., 0], part[2][..., 0], (3, 4), implementation=how)
    torch.testing.assert_close(out[1].view(4, 6, -1)[:3, :4].flatten(0, 1), alone[0])
    assert torch.equal(out[out_of.flatten(1)], x[out_of.flatten(1)])
    grad, = torch.autograd.grad(out.sum(), x)
    assert torch.equal(grad[out_of.flatten(1)], torch.ones_like(grad[out_of.flatten(1)]))


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
@pytest.mark.parametrize('how', IMPLEMENTATIONS)
def test_autocast_changes_nothing(how, dtype):
    leaves = [each.float().requires_grad_() for each in make((5, 6))]
    expected = context_pool(*leaves, (5, 6), implementation=how)
    grads = torch.autograd.grad(expected.square().sum(), leaves)
    with torch.autocast('cpu', dtype):
        out = context_pool(*leaves, (5, 6), implementation=how)
    found = torch.autograd.grad(out.square().sum(), leaves)
    assert torch.equal(out, expected)
    torch.testing.assert_close(grads, found, atol=1e-5, rtol=1e-5)


def test_auto_is_exact():
    inputs = make((6, 6), largest=1.0)
    assert torch.equal(context_pool(*inputs, (6, 6)),
                       context_pool(*inputs, (6, 6), implementation='exact'))


@pytest.mark.parametrize('change, message', [
    (dict(implementation='fast'), "implementation='fast' must be one of"),
    (dict(kernel='box'), "kernel='box' must be one of"),
    (dict(stride=0), 'stride=0 must be at least 1'),
    (dict(causal=True), r'causal=True needs a sequence, hw_shape=\(1, L\), not \(3, 4\)'),
    (dict(hw_shape=(3, 5)), r'x has 12 tokens, but hw_shape=\(3, 5\)'),
    (dict(sigma=torch.ones(2, 11)), r'sigma has shape \(2, 11\); \(B, L\) = \(2, 12\)'),
    (dict(weight_logits=torch.ones(1, 12)), r'weight_logits has shape \(1, 12\)'),
    (dict(sigma=-torch.ones(2, 12)), 'sigma has negative or NaN values'),
    (dict(sigma=torch.full((2, 12), math.nan)), 'sigma has negative or NaN values'),
    (dict(weight_logits=torch.full((2, 12), math.nan)), 'weight_logits has NaN or inf values'),
    (dict(weight_logits=torch.full((2, 12), -math.inf)), 'an image where all are -inf'),
])
def test_bad_input(change, message):
    good = dict(x=torch.ones(2, 12, 3), weight_logits=torch.zeros(2, 12),
                sigma=torch.ones(2, 12), hw_shape=(3, 4))
    with pytest.raises(ValueError, match=message):
        context_pool(**{**good, **change})


@pytest.fixture
def small_blocks(monkeypatch):
    """Cut into many groups of queries, rectangles and rows of keys."""
    monkeypatch.setattr(partition, 'WHOLE_PAIRS', 0)
    monkeypatch.setattr(partition, 'GROUP', 16)
    monkeypatch.setattr(partition, 'REGION', 6)
    monkeypatch.setitem(partition.BLOCK_ELEMENTS, 'cpu', 700)


@pytest.mark.parametrize('absent', [0.0, 0.3])
@pytest.mark.parametrize('kernel', ['gaussian', 'window'])
@pytest.mark.parametrize('stride, causal, hw', [(1, False, (20, 13)), (2, False, (20, 13)),
                                                (3, False, (7, 31)), (1, True, (1, 300)),
                                                (2, True, (1, 301))])
@pytest.mark.usefixtures('small_blocks')
def test_values_and_gradients_of_the_definition(hw, stride, causal, kernel, absent):
    """A share of the tokens has no weight: they come back, pool nothing, and pass the gradient."""
    leaves = [each.requires_grad_() for each in make(hw)]
    x, logits, sigma = leaves
    without = torch.rand(logits.shape, generator=torch.Generator().manual_seed(1)) < absent
    outs = [context_pool(x, logits.masked_fill(without, -math.inf), sigma, hw, implementation=how,
                         causal=causal, kernel=kernel, stride=stride)
            for how in ('reference', 'exact')]
    grad = torch.randn_like(outs[0])
    grads = [torch.autograd.grad(out, leaves, grad) for out in outs]
    torch.testing.assert_close((outs[0], *grads[0]), (outs[1], *grads[1]), atol=1e-11, rtol=1e-9)


def test_window_mean_where_gradients_of_padded_pooling_are_wrong(monkeypatch):
    """On a GPU torch's avg_pool2d gives each cell the gradient of another, as far before it as the
    padding is wide."""
    pool = F.avg_pool2d

    def pool_of_gpu(x, kernel, stride=1, padding=(0, 0)):
        moved = pool(F.pad(x, (0, 2 * padding[1], 0, 2 * padding[0])), kernel, stride)
        return moved + (pool(x, kernel, stride, padding) - moved).detach()
    monkeypatch.setattr(F, 'avg_pool2d', pool_of_gpu)
    x, logits, _ = make((4, 5))
    inputs = x.requires_grad_(), logits.exp().requires_grad_()
    assert torch.autograd.gradcheck(lambda *args: window_mean(*args, (4, 5), 3), inputs)


def test_random_mean_draws_from_all_of_the_image_and_no_other():
    x, logits, _ = make((9, 11), batch=2)
    x = torch.eye(99, dtype=torch.float64).expand(2, -1, -1)
    extents = torch.tensor([[9, 11], [4, 5]])
    out = random_mean(x, torch.ones(2, 99, dtype=torch.float64), (9, 11), extents, 20)
    drawn = (out[0] > 0).sum(1)
    assert int(drawn.min()) > 12 and int(drawn.max()) <= 21
    assert bool((out[0].diagonal() > 0).all())
    assert bool((out[0].sum(0) > 0).all()) and float((out[0] > 0).sum(0).float().std()) < 8
    inside = torch.zeros(9, 11, dtype=torch.bool)
    inside[:4, :5] = True
    others = out[1] * (1 - torch.eye(99))
    assert not others[:, ~inside.flatten()].any() and others[:, inside.flatten()].any(0).all()
