"""CARAFE against a loop over places and taps."""
import itertools

import pytest
import torch

import mmposenc  # noqa: F401  (before mmcv's operators)
from mmposenc.compat.carafe import carafe_naive_backward

ops = pytest.importorskip('mmcv.ops')


def loop(x, masks, kernel, groups, scale):
    out = torch.zeros(*x.shape[:2], x.shape[2] * scale, x.shape[3] * scale, dtype=x.dtype)
    for c, row, col, i, j in itertools.product(range(x.shape[1]), range(out.shape[2]),
                                               range(out.shape[3]), range(kernel), range(kernel)):
        y, z = row // scale + i - kernel // 2, col // scale + j - kernel // 2
        if 0 <= y < x.shape[2] and 0 <= z < x.shape[3]:
            channel = (c // (x.shape[1] // groups) * kernel + i) * kernel + j
            out[:, c, row, col] += x[:, c, y, z] * masks[:, channel, row, col]
    return out


@pytest.mark.parametrize('hw, kernel, groups, scale', [((3, 2), 3, 2, 2), ((1, 2), 5, 1, 3),
                                                       ((2, 2), 1, 4, 1)])
def test_equals_the_definition_and_its_gradient(hw, kernel, groups, scale):
    torch.manual_seed(0)
    x = torch.randn(1, 4, *hw, dtype=torch.float64)
    masks = torch.randn(1, groups * kernel ** 2, hw[0] * scale, hw[1] * scale, dtype=torch.float64)
    expected = loop(x, masks, kernel, groups, scale)
    for operator in (ops.carafe, ops.carafe_naive):
        torch.testing.assert_close(operator(x, masks, kernel, groups, scale), expected)
        torch.testing.assert_close(operator(x.mT.contiguous().mT, masks, kernel, groups, scale),
                                   expected)
    given = (x.requires_grad_(), masks.requires_grad_())
    assert torch.autograd.gradcheck(lambda *both: ops.carafe(*both, kernel, groups, scale), given)
    # mmcv's naive layer refuses to go back on a CPU; the operator itself does not.
    grad = torch.randn_like(expected)
    wanted = torch.autograd.grad(ops.carafe(*given, kernel, groups, scale), given, grad)
    found = [torch.empty_like(each) for each in given]
    carafe_naive_backward(grad, x.detach(), masks.detach(), *found, kernel, groups, scale)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_half_precision_is_added_up_in_single():
    torch.manual_seed(0)
    x, masks = torch.randn(1, 2, 4, 4).half(), torch.rand(1, 25, 8, 8).half()
    single = ops.carafe(x.float(), masks.float(), 5, 1, 2)
    assert torch.equal(ops.carafe(x, masks, 5, 1, 2), single.half())
