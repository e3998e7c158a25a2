"""The convolutional projection written out."""
import math

import pytest
import torch
import torch.nn.functional as F

from mmposenc.attention import ConvProjectionAttention
from mmposenc.backbones import DeiT


def convolve(conv, x, grid, prefix):
    """A depthwise convolution of the grid's tokens, zeros around it."""
    maps = x[prefix:].T.unflatten(1, grid)[None]
    out = F.conv2d(maps, conv.weight, conv.bias, padding=conv.kernel_size[0] // 2, groups=len(x.T))
    return torch.cat((x[:prefix], out[0].flatten(1).T))


@pytest.mark.parametrize('grid, prefix, kernel', [((2, 3), 1, 3), ((3, 1), 0, 3), ((1, 4), 2, 5)])
def test_is_attention_of_convolved_tokens(grid, prefix, kernel) -> None:
    torch.manual_seed(0)
    module = ConvProjectionAttention(8, 2, kernel_size=kernel, num_prefix_tokens=prefix).double()
    x = torch.randn(prefix + grid[0] * grid[1], 8, dtype=torch.float64)
    q, k, v = (convolve(conv, x, grid, prefix) @ module.qkv.weight[8 * i:8 * i + 8].T
               + module.qkv.bias[8 * i:8 * i + 8]
               for i, conv in enumerate((module.conv_q, module.conv_k, module.conv_v)))
    heads = [(q[:, h] @ k[:, h].T / math.sqrt(4)).softmax(-1) @ v[:, h]
             for h in (slice(0, 4), slice(4, 8))]
    expected = torch.cat(heads, 1) @ module.proj.weight.T + module.proj.bias
    torch.testing.assert_close(module(x[None], grid)[0], expected)


def test_other_tokens_for_queries_and_keys() -> None:
    torch.manual_seed(0)
    module = ConvProjectionAttention(8, 2).double()
    x, x_qk = torch.randn(2, 1, 6, 8, dtype=torch.float64)
    same = module(x, (2, 3), x_qk=x)
    torch.testing.assert_close(same, module(x, (2, 3)))
    assert not torch.allclose(module(x, (2, 3), x_qk=x_qk), same)
    with pytest.raises(ValueError, match='x_qk has shape'):
        module(x, (2, 3), x_qk=x_qk[:, 1:])


def test_options() -> None:
    with pytest.raises(ValueError, match='kernel_size=4 must be odd'):
        ConvProjectionAttention(8, 2, kernel_size=4)
    with torch.device('meta'):
        blocks = DeiT('tiny', conv_projection=(0,)).blocks
        assert [isinstance(block.attn, ConvProjectionAttention) for block in blocks] == [
            True] + 11 * [False]
        with pytest.raises(ValueError, match=r'conv_projection=\(12,\) must be blocks from 0'):
            DeiT('tiny', conv_projection=(12,))
