"""Every encoding on another device: no tensor stays on the CPU, and the host does not wait."""
import examples
import pytest
import torch
from helpers.on_device import check
from helpers.relative_checks import attend
from torch import nn

from mmposenc.functional import Grid

#: Query grid, key grid, prefix tokens.
GRIDS = {'prefix': ((4, 5), None, 1), 'reduced': ((4, 6), Grid(2, 3, 2.0, 2.0), 0)}


class Attend(nn.Module):
    """Attention as a module."""

    def __init__(self, encoding, grids):
        super().__init__()
        self.encoding, self.grids = encoding, grids

    def forward(self, q, k, v, hidden=None):
        return attend(q, k, v, self.encoding, *self.grids, key_padding_mask=hidden)[0]


SLOW = pytest.mark.slow


@pytest.mark.usefixtures('accelerated')
@pytest.mark.parametrize('grid, large', [
    ('prefix', True), ('reduced', False), pytest.param('prefix', False, marks=SLOW),
    pytest.param('reduced', True, marks=SLOW)])
@pytest.mark.parametrize('name', examples.RELATIVE)
def test_relative_encodings(name, grid, large):
    """Also of padded images, where each token has its place whatever the image's size."""
    query, key, prefix = GRIDS[grid]
    encoding = examples.relative(name, query, head_dims=16, num_prefix_tokens=prefix)
    lengths = (prefix + query[0] * query[1], prefix + (key or Grid(*query)).num_cells)
    torch.manual_seed(0)
    qkv = [torch.randn(2, 2, length, 16) for length in (*lengths, lengths[1])]
    hidden = torch.zeros(2, lengths[1], dtype=torch.bool)
    hidden[0, -2:] = True
    for inputs in (qkv, [*qkv, hidden])[:1 + encoding.cellwise]:
        check(Attend(encoding, (query, key)), lambda m, *x: m(*x), inputs)


@pytest.mark.parametrize('name', examples.TOKEN_OPTIONS)
def test_token_encodings(name):
    encoding = examples.token(name, (4, 6))
    torch.manual_seed(0)
    padding = torch.zeros(2, 4, 6, dtype=torch.bool)
    padding[0, 3:] = True
    for inputs in ([torch.randn(2, 24, 8)], [torch.randn(2, 24, 8), padding]):
        check(encoding, lambda m, x, mask=None: m(x, (4, 6), padding_mask=mask), inputs)
