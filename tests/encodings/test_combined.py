"""The sum of several relative encodings."""
import pytest
import torch
from helpers.tiny_backbones import BUILD, images, randomize

from mmposenc.attention.attend import attend
from mmposenc.encodings import IRPE, CombinedRPE, OffsetBiasEncoding, RotaryEmbedding
from mmposenc.functional import Grid

IRPE_QKV = dict(type='mmposenc.IRPE', rpe_on='qkv')
SHAW = dict(type='ShawRPE', on_values=True)
ROTARY = dict(type='RotaryEmbedding', directions='learned')


def build(*encodings, **options):
    encoding = CombinedRPE(list(encodings), head_dims=4, num_heads=2, **options).double()
    randomize(encoding, 1.0)
    return encoding


def tensors(length):
    torch.manual_seed(1)
    return torch.randn(3, 2, 2, length, 4, dtype=torch.float64).unbind(0)


@pytest.mark.parametrize('prefix', [0, 1])
@pytest.mark.parametrize('grid', [(3, 4), (1, 5)])
def test_terms_are_added(grid, prefix):
    both = build(IRPE_QKV, SHAW, num_prefix_tokens=prefix)
    q, k, v = tensors(prefix + grid[0] * grid[1])
    first, second = both.encodings
    weights = ((q * 0.5) @ k.mT + first.logits(q * 0.5, k, grid)
               + second.logits(q * 0.5, k, grid)).softmax(-1)
    torch.testing.assert_close(attend(q, k, v, both, grid)[0], weights @ v
                               + first.values(weights, grid) + second.values(weights, grid))


def test_rotation_comes_before_the_logit_terms():
    both = build(ROTARY, dict(type='IRPE', rpe_on='k'))
    assert both.rotation is both and len(both.terms(Grid(3, 4), Grid(3, 4))) == 1
    rotary, irpe = both.encodings
    q, k, v = tensors(12)
    turned_q, turned_k = rotary.rotate(q * 0.5, k, (3, 4))
    scores = turned_q @ turned_k.transpose(-1, -2) + irpe.logits(turned_q, turned_k, (3, 4))
    torch.testing.assert_close(attend(q, k, v, both, (3, 4))[0], scores.softmax(-1) @ v)


@pytest.mark.parametrize('backbone', BUILD)
def test_a_list_is_the_sum(backbone):
    listed, named = (BUILD[backbone](rel_pos_encoding=each).eval() for each in (
        [IRPE_QKV, ROTARY], dict(type='CombinedRPE', encodings=[IRPE_QKV, ROTARY])))
    named.load_state_dict(randomize(listed, 0.3).state_dict())
    assert torch.equal(listed(images())[0], named(images())[0])


class Turned(OffsetBiasEncoding):
    """A user's, who forgot prefix tokens, and puts columns before rows."""

    def __init__(self):
        super().__init__()
        self._set_heads(2, 0)

    def offset_table(self, row_offsets, col_offsets, q_grid):
        return torch.zeros(2, len(col_offsets), len(row_offsets))


@pytest.mark.parametrize('build, message', [
    (lambda: build(dict(type=Turned), num_prefix_tokens=1), 'Turned must take num_prefix_tokens'),
    (lambda: Turned().terms(Grid(2, 3), Grid(2, 3)),
     r'table of Turned has shape \(2, 5, 3\); .* \(2, 3, 5\) is required'),
    (lambda: CombinedRPE([]), r'encodings=\[\] must hold at least one'),
    (lambda: build(IRPE_QKV, dict(type='What')), r"encodings\[1\]: unknown encoding type='What'"),
    (lambda: build(IRPE(4, 3)), r'encodings\[0\] has num_heads=3, but num_heads=2'),
    (lambda: build(RotaryEmbedding(4, 2), num_prefix_tokens=1),
     'has num_prefix_tokens=0, but num_prefix_tokens=1'),
    ])
def test_bad_lists_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()
