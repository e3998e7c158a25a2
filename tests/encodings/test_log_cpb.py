"""SwinV2's continuous bias against mmpretrain's and against loops from the paper."""
import math

import pytest
import torch
from relative_checks import (
    GRIDS,
    check_autocast,
    check_forms,
    check_gradients,
    check_logits,
    positions,
)

from mmposenc.encodings import LogSpacedCPB


def build(**options):
    encoding = LogSpacedCPB(2, **{'hidden_dims': 5, **options})
    encoding.head_dims = 4  # for the checks
    return encoding


@pytest.mark.parametrize(('window_size', 'pretrained'),
                         [((4, 4), (0, 0)), ((3, 5), (0, 0)), ((6, 4), (3, 5))])
def test_equals_mmpretrain(window_size, pretrained):
    attention = pytest.importorskip('mmpretrain.models.utils.attention')
    theirs = attention.WindowMSAV2(8, window_size, 2, cpb_mlp_hidden_dims=16,
                                   pretrained_window_size=pretrained)
    ours = LogSpacedCPB(2, hidden_dims=16, window_size=pretrained if pretrained[0] else None)
    ours.cpb_mlp.load_state_dict(theirs.cpb_mlp.state_dict())
    index = theirs.relative_position_index
    table = theirs.cpb_mlp(theirs.relative_coords_table).view(-1, 2)
    expected = 16 * torch.sigmoid(table[index].permute(2, 0, 1))
    q = torch.zeros(1, 2, index.shape[0], 4)
    torch.testing.assert_close(ours.logits(q, q, window_size)[0], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize('mode', ['swin', 'cr'])
@pytest.mark.parametrize('prefix_tokens', [0, 1])
@pytest.mark.parametrize('window_size', [(4, 4), (3, 5), (1, 6), (6, 2)])
def test_equals_timm(mode, prefix_tokens, window_size):
    """timm's RelPosMlp, whose network is made for no size in mode 'cr', and here for any in both;
    it adds nothing to pairs with the class token."""
    rel = pytest.importorskip('timm.layers.pos_embed_rel')
    theirs = rel.RelPosMlp((4, 4), 3, hidden_dim=7, prefix_tokens=prefix_tokens, mode=mode).eval()
    ours = LogSpacedCPB(3, hidden_dims=7, num_prefix_tokens=prefix_tokens, mode=mode,
                        prefix_bias=False)
    with torch.no_grad():
        for target, source in zip(ours.parameters(), theirs.parameters(), strict=True):
            target.copy_(torch.nn.init.normal_(source))
    theirs.set_window_size(window_size)
    expected = theirs.get_bias()
    q = torch.zeros(1, 3, expected.shape[-1], 4)
    got = ours.logits(q, q, window_size)
    if mode == 'swin' and 1 in window_size:  # timm divides 0 by 0
        assert expected.isnan().any() and not got.isnan().any()
        return
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
    weights = torch.randn(expected.shape)
    for one, other in zip(torch.autograd.grad((got * weights).sum(), list(ours.parameters())),
                          torch.autograd.grad((expected * weights).sum(),
                                              list(theirs.parameters())), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize('window_size', [None, (3, 8), 'cr'])
@pytest.mark.parametrize(('q_grid', 'k_grid'), GRIDS)
@pytest.mark.parametrize('num_prefix_tokens', [0, 2])
def test_logits(window_size, q_grid, k_grid, num_prefix_tokens):
    plain = window_size == 'cr'
    encoding = build(num_prefix_tokens=num_prefix_tokens,
                     **(dict(mode='cr') if plain else dict(window_size=window_size)))
    queries, keys = positions(q_grid, k_grid, num_prefix_tokens)
    unit = q_grid if plain else window_size or q_grid

    def coordinate(offset, length):
        if plain:
            return math.copysign(math.log(1 + abs(offset)), offset)
        x = offset / max(length - 1, 1) * 8
        return math.copysign(math.log2(1 + abs(x)) / math.log2(8), x)

    def pair_term_of(q, k):
        def pair_term(b, h, i, j):
            if queries[i] is None or keys[j] is None:
                kind = 2 if queries[i] is None and keys[j] is None else int(queries[i] is not None)
                return encoding.prefix_bias[h, kind]
            x = [coordinate(queries[i][a] - keys[j][a], unit[a]) for a in (0, 1)]
            out = encoding.cpb_mlp(torch.tensor(x, dtype=q.dtype))[h]
            return out if plain else 16 * torch.sigmoid(out)

        return pair_term

    check_logits(encoding, pair_term_of, q_grid, k_grid)


def test_gradients():
    check_gradients(build(num_prefix_tokens=1), (2, 3), None)
    check_gradients(build(), (4, 4), (2, 2))
    check_gradients(build(mode='cr'), (2, 3), None)


def test_one_cell():
    """A grid of one cell has offset 0 on both axes, not 0 / 0."""
    encoding = build()
    q = torch.zeros(1, 2, 1, 4)
    expected = 16 * torch.sigmoid(encoding.cpb_mlp(torch.zeros(2)))
    torch.testing.assert_close(encoding.logits(q, q, (1, 1)).flatten(), expected)


@pytest.mark.parametrize(('q_grid', 'k_grid'), GRIDS)
def test_forms(q_grid, k_grid):
    check_forms(build(), q_grid, k_grid)
    check_forms(build(num_prefix_tokens=1), q_grid, k_grid)


def test_autocast():
    check_autocast(build(), (3, 4), None)


@pytest.mark.parametrize(('options', 'message'), [
    (dict(window_size=(0, 3)), r'window_size=\(0, 3\)'),
    (dict(hidden_dims=0), r'hidden_dims=0 must be >= 1'),
    (dict(mode='rw'), r"mode='rw' must be 'swin' or 'cr'"),
])
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)
