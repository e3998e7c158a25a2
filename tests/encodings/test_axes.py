"""Attention on sequences and videos, and what PEG and the encodings refuse of them."""
import math

import pytest
import torch
import torch.nn.functional as F
from helpers.tiny_backbones import randomize

from mmposenc.attention import MultiheadAttention, attend
from mmposenc.encodings import IRPE, PEG, CombinedRPE, RotaryEmbedding, ShawRPE
from mmposenc.functional import Grid

SHAPES = {1: (5,), 2: (2, 4), 3: (3, 2, 4)}
EVERY = pytest.mark.parametrize('dims', SHAPES)


@EVERY
@pytest.mark.parametrize('how', ['auto', 'reference', 'chunked', 'sdpa'])
def test_attention_depends_on_offsets_alone_and_not_on_padding(dims, how):
    """Keys anywhere in a video have the weights that keys in its middle have."""
    shape, full = SHAPES[dims], tuple(side + 1 for side in SHAPES[dims])
    attention = randomize(MultiheadAttention(
        24, 2, rel_pos_encoding=dict(type='mmposenc.RotaryEmbedding', dims=dims),
        num_prefix_tokens=1, implementation=how), 0.5).double()
    x = torch.randn(math.prod(shape) + 1, 24, dtype=torch.float64)
    alone = attention(x[None], shape)[0]
    one_more = (0, 1) * dims
    tokens = F.pad(x[1:].view(*shape, -1), (0, 0, *one_more), value=5.0).flatten(0, -2)
    mask = F.pad(torch.zeros(shape, dtype=torch.bool), one_more, value=True)
    out = attention(torch.cat((x[:1], tokens))[None], full,
                    torch.cat((mask.new_zeros(1), mask.flatten()))[None])[0]
    torch.testing.assert_close(out[0], alone[0])
    torch.testing.assert_close(out[1:][~mask.flatten()], alone[1:])


def test_a_sequence_is_a_grid_of_one_row_for_every_relative_encoding():
    encoding = randomize(ShawRPE(4, 2, max_offset=3), 0.5).double()
    q, k, v = (torch.randn(1, 2, 6, 4, dtype=torch.float64) for _ in range(3))
    torch.testing.assert_close(attend(q, k, v, encoding, (6,)), attend(q, k, v, encoding, (1, 6)))


BAD = {
    'head_dims=4 must be even and at least 2 * dims = 6': lambda: RotaryEmbedding(4, 2, dims=3),
    'head_dims=7 must be even': lambda: RotaryEmbedding(7, 2, dims=1),
    "directions='golden' with dims=1": lambda: RotaryEmbedding(8, 2, dims=1, directions='golden'),
    'shift=0.5 with dims=3': lambda: RotaryEmbedding(12, 2, dims=3, shift=0.5),
    "hw_shape=(2, 3) must be (length,)": lambda: PEG(4, dims=1)(torch.zeros(1, 6, 4), (2, 3)),
    'hw_shape=(6,) must be (height, width)': lambda: PEG(4)(torch.zeros(1, 6, 4), (6,)),
    'hw_shape=(2, 3) must be (frames, height, width)': lambda: PEG(4, dims=3)(
        torch.zeros(1, 6, 4), (2, 3)),
    'need 0 + 2 * 2 * 2 = 8': lambda: PEG(4, dims=3)(torch.zeros(1, 6, 4), (2, 2, 2)),
    'IRPE has no axis of time': lambda: attend(*torch.zeros(3, 1, 2, 8, 4), IRPE(4, 2), (2, 2, 2)),
    'CombinedRPE has no axis of time': lambda: attend(
        *torch.zeros(3, 1, 2, 8, 12), CombinedRPE([RotaryEmbedding(12, 2, dims=3), dict(
            type='IRPE', head_dims=12, num_heads=2)]), (2, 2, 2)),
    'q_grid=(2, 3) has more axes than dims=1': lambda: attend(
        *torch.zeros(3, 1, 2, 6, 4), RotaryEmbedding(4, 2, dims=1), (2, 3)),
    'q_grid=(2, 2, 2) has frames': lambda: IRPE(4, 2).logits(
        *torch.zeros(2, 1, 2, 8, 4), Grid(2, 2, frames=2)),
    '(length,), (height, width) or (frames, height, width)': lambda: MultiheadAttention(8, 2)(
        torch.zeros(1, 8, 8), (2, 2, 2, 1)),
}


@pytest.mark.parametrize('message', BAD)
def test_what_does_not_fit_is_named(message):
    with pytest.raises(ValueError) as error:
        BAD[message]()
    assert message in str(error.value)
