"""Masked convolution: the ordinary one on the cells asked for, zero elsewhere."""
import pytest
import torch
from torch import nn

import mmposenc  # noqa: F401  (before mmcv's operators)

ops = pytest.importorskip('mmcv.ops')


@pytest.mark.parametrize('kernel, padding', [((3, 3), 1), ((1, 3), (0, 1)), ((1, 1), 0)])
def test_equals_a_convolution_where_it_is_asked(kernel, padding):
    torch.manual_seed(0)
    layer = ops.MaskedConv2d(3, 4, kernel, padding=padding).double()
    x = torch.randn(1, 3, 5, 6, dtype=torch.float64)
    mask = torch.rand(1, 5, 6) > 0.5
    expected = nn.functional.conv2d(x, layer.weight, layer.bias, padding=padding) * mask
    torch.testing.assert_close(layer(x, mask), expected)
    torch.testing.assert_close(layer(x.mT.contiguous().mT, mask), expected)
    assert not layer(x, torch.zeros(1, 5, 6, dtype=torch.bool)).any()
