import math

import pytest
import torch

import mmposenc  # noqa: F401  (before mmcv's operators)
from mmposenc.compat.focal_loss import sigmoid_focal_loss_backward, sigmoid_focal_loss_forward


def naive_loss(x, is_target, gamma, alpha):
    """Focal loss of one logit and its derivative, in Python floats."""
    p = 1 / (1 + math.exp(-x))
    if is_target:
        slope = (1 - p) ** gamma * (1 - p - gamma * p * math.log(p))
        return -alpha * (1 - p) ** gamma * math.log(p), -alpha * slope
    slope = p ** gamma * (p - gamma * (1 - p) * math.log(1 - p))
    return -(1 - alpha) * p ** gamma * math.log(1 - p), (1 - alpha) * slope


def run(input, target, gamma=2.0, alpha=0.25):
    output, grad, weight = torch.zeros_like(input), torch.zeros_like(input), input.new_empty(0)
    sigmoid_focal_loss_forward(input, target, weight, output, gamma=gamma, alpha=alpha)
    sigmoid_focal_loss_backward(input, target, weight, grad, gamma=gamma, alpha=alpha)
    return output, grad


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('gamma, alpha', [(2.0, 0.25), (0.0, 0.5), (1.5, 0.9)])
def test_equals_naive_loop(dtype, gamma, alpha):
    generator = torch.Generator().manual_seed(0)
    input = torch.randn(9, 4, generator=generator, dtype=dtype) * 3
    target = torch.randint(0, 5, (9,), generator=generator)  # 4: background
    expected = torch.zeros(2, 9, 4, dtype=dtype)
    for n in range(9):
        for c in range(4):
            pair = naive_loss(input[n, c].item(), target[n].item() == c, gamma, alpha)
            expected[:, n, c] = torch.tensor(pair, dtype=dtype)
    tolerance = dict(atol=1e-6, rtol=1e-5) if dtype == torch.float32 else {}
    torch.testing.assert_close(torch.stack(run(input, target, gamma, alpha)), expected, **tolerance)
    assert run(input[:0], target[:0])[1].shape == (0, 4)


def test_through_mmcv():
    """It multiplies by the gradient it is given: of single losses, checked for ones alone."""
    sigmoid_focal_loss = pytest.importorskip('mmcv.ops').sigmoid_focal_loss
    input = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0, 1, 2, 3, 1])
    sigmoid_focal_loss(input, target, 2.0, 0.25, None, 'none').sum().backward()
    torch.testing.assert_close(input.grad, run(input.detach(), target)[1])
    for reduction in ('mean', 'sum'):
        assert torch.autograd.gradcheck(
            lambda x, how=reduction: sigmoid_focal_loss(x, target, 2.0, 0.25, None, how), (input,))
    with pytest.raises(NotImplementedError, match='weights of classes .* need an mmcv with'):
        sigmoid_focal_loss(input, target, 2.0, 0.25, torch.ones(3), 'none')


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_large_logits_stay_exact(dtype):
    input = torch.tensor([[-1e4, 1e4, -200.0]], dtype=dtype)
    output, grad = run(input, torch.tensor([0]))
    torch.testing.assert_close(output, torch.tensor([[2500.0, 7500.0, 0]], dtype=dtype))
    torch.testing.assert_close(grad, torch.tensor([[-0.25, 0.75, 0]], dtype=dtype))
