"""Weights of one axis against their formulas, and their derivatives against autograd."""
import math

import pytest
import torch

from mmposenc.functional.pooling.kernels import (
    MIN_SIGMA,
    axis_distances,
    axis_logits,
    axis_weights,
    reach,
)

SIZES = (0.3, 1.0, 2.4)


def formula(kernel, distance, sigma):
    if kernel == 'gaussian':
        return math.exp(-distance ** 2 / (2 * sigma ** 2))
    return min(max(sigma + 1 - abs(distance), 0), 1)


@pytest.mark.parametrize('causal', [False, True])
@pytest.mark.parametrize('kernel', ['gaussian', 'window'])
def test_weights(kernel, causal):
    distance = axis_distances(7, torch.zeros(1, dtype=torch.float64))
    sigma = torch.tensor(SIZES, dtype=torch.float64)[:, None, None].requires_grad_()
    weights, slope = axis_weights(kernel, distance, sigma.detach(), 40.0, causal)
    assert weights.shape == slope.shape == (3, 7, 7)
    for k, size in enumerate(SIZES):
        for i in range(7):
            for j in range(7):
                want = 0 if causal and j > i else formula(kernel, i - j, size)
                want = 0 if want < math.exp(-40) else want
                assert float(weights[k, i, j]) == pytest.approx(want, abs=1e-14)
    logits = axis_logits(kernel, distance, sigma, 40.0, causal)
    torch.testing.assert_close(logits.exp(), weights)
    # 0.3 + 1 and 2.4 + 1 lie between cells, so no difference is taken across an edge of a window
    step = 1e-6
    higher, _ = axis_weights(kernel, distance, sigma.detach() + step, 40.0, causal, False)
    lower, none = axis_weights(kernel, distance, sigma.detach() - step, 40.0, causal, False)
    assert none is None
    inside = torch.tensor([0, 2] if kernel == 'window' else [0, 1, 2])
    torch.testing.assert_close(slope[inside], ((higher - lower) / (2 * step))[inside],
                               atol=1e-8, rtol=1e-6)
    grad, = torch.autograd.grad(logits.exp().sum(), sigma)
    torch.testing.assert_close(grad[inside], slope.sum((1, 2), keepdim=True)[inside])


@pytest.mark.parametrize('kernel', ['gaussian', 'window'])
@pytest.mark.parametrize('sigma', [0.0, 0.5, 1.0, 3.7])
def test_reach_is_where_weights_end(kernel, sigma):
    far = reach(kernel, sigma, cut=4.0)
    near = torch.tensor([far * (1 - 1e-6), far * (1 + 1e-6)], dtype=torch.float64)
    weights, _ = axis_weights(kernel, near, torch.tensor(sigma, dtype=torch.float64), 4.0, False)
    assert weights[0] > 0 and weights[1] == 0


def test_sizes_have_a_least():
    distance = torch.tensor([0.0, 1.0])
    for sigma in (0.0, MIN_SIGMA / 2):
        weights, slope = axis_weights('gaussian', distance, torch.tensor(sigma), 40.0, False)
        assert weights.tolist() == [1, 0] and slope.tolist() == [0, 0]


def test_distances_are_query_minus_key():
    assert axis_distances(3, torch.zeros(1)).tolist() == [[0, -1, -2], [1, 0, -1], [2, 1, 0]]
