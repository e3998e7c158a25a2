"""Absolute and PEG encodings together with relative ones, in one block, with prefix tokens."""
import examples
import pytest
import torch
from torch import nn

from mmposenc.attention import MultiheadAttention
from mmposenc.encodings import (
    PEG,
    LearnedPositionEmbedding,
    SinCosPositionEncoding,
    position_tables,
)

HW, PREFIX, DIMS, HEADS = (3, 5), 1, 16, 2
TOKEN_ENCODINGS = {
    'learned': lambda: LearnedPositionEmbedding(DIMS, HW),
    'sincos': lambda: SinCosPositionEncoding(DIMS),
    'peg': lambda: PEG(DIMS),
}
#: One of each class.
RELATIVE = ['IRPE product qkv', 'ShawRPE with values', 'TransformerXLRPE', 'HuangRPE', 'SASARPE',
            'RelativePositionBias', 'QueryAbsolute1D', 'QueryRelative1D per head',
            'QueryRelative2D', 'RotaryEmbedding2D mixed', 'LogSpacedCPB', 'CombinedRPE of two']


class Block(nn.Module):
    """A token encoding before attention with a relative one."""

    def __init__(self, token_encoding, relative):
        super().__init__()
        self.encoding = token_encoding
        self.attention = MultiheadAttention(DIMS, HEADS, num_prefix_tokens=PREFIX,
                                            rel_pos_encoding=relative)

    def forward(self, x, hw_shape, padding_mask=None):
        key_padding = None
        if padding_mask is not None:
            prefix = padding_mask.new_zeros(padding_mask.shape[0], PREFIX)
            key_padding = torch.cat((prefix, padding_mask.flatten(1)), 1)
        x = self.encoding(x, hw_shape, num_prefix_tokens=PREFIX, padding_mask=padding_mask)
        return self.attention(x, hw_shape, key_padding)


def build(token, relative):
    torch.manual_seed(0)
    encoding = examples.relative(relative, HW, head_dims=DIMS // HEADS, num_heads=HEADS,
                                 num_prefix_tokens=PREFIX)
    block = Block(TOKEN_ENCODINGS[token](), encoding).double()
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.3)
    return block


#: Every pair in the full suite, each relative encoding with one of the others in the short one.
PAIRS = [pytest.param(token, relative, marks=() if (row - column) % 3 == 0 else pytest.mark.slow)
         for row, relative in enumerate(RELATIVE) for column, token in enumerate(TOKEN_ENCODINGS)]


@pytest.mark.parametrize('token, relative', PAIRS)
def test_both_act_and_padding_changes_nothing(token, relative):
    """Every parameter of both has a gradient, and each changes the output."""
    block = build(token, relative)
    x = torch.randn(2, 16, DIMS, dtype=torch.float64)
    out = block(x, HW)
    out.square().sum().backward()
    for name, parameter in block.named_parameters():
        assert parameter.grad.abs().max() > 0, name
    without = MultiheadAttention(DIMS, HEADS, num_prefix_tokens=PREFIX).double()
    without.load_state_dict(block.attention.state_dict(), strict=False)
    encoded = block.encoding(x, HW, num_prefix_tokens=PREFIX)
    assert not torch.allclose(without(encoded, HW), out)
    assert not torch.allclose(block.attention(x, HW), out)
    assert all('attention.rel_pos_encoding' in name for name in position_tables(block))
    mask = torch.zeros(2, 3, 5, dtype=torch.bool)
    mask[:, 2:], mask[:, :, 4:] = True, True
    grid = x[:, 1:].unflatten(1, HW)
    alone = block(torch.cat((x[:, :1], grid[:, :2, :4].flatten(1, 2)), 1), (2, 4))
    got = block(x, HW, mask)
    torch.testing.assert_close(got[:, :1], alone[:, :1])
    torch.testing.assert_close(got[:, 1:].unflatten(1, HW)[:, :2, :4].flatten(1, 2), alone[:, 1:])
