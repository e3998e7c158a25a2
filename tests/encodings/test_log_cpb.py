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


@pytest.mark.parametrize('window_size', [None, (3, 8)])
@pytest.mark.parametrize(('q_grid', 'k_grid'), GRIDS)
@pytest.mark.parametrize('num_prefix_tokens', [0, 2])
def test_logits(window_size, q_grid, k_grid, num_prefix_tokens):
    encoding = build(window_size=window_size, num_prefix_tokens=num_prefix_tokens)
    queries, keys = positions(q_grid, k_grid, num_prefix_tokens)
    unit = window_size or q_grid

    def coordinate(offset, length):
        x = offset / max(length - 1, 1) * 8
        return math.copysign(math.log2(1 + abs(x)) / math.log2(8), x)

    def pair_term_of(q, k):
        def pair_term(b, h, i, j):
            if queries[i] is None or keys[j] is None:
                kind = 2 if queries[i] is None and keys[j] is None else int(queries[i] is not None)
                return encoding.prefix_bias[h, kind]
            x = [coordinate(queries[i][a] - keys[j][a], unit[a]) for a in (0, 1)]
            return 16 * torch.sigmoid(encoding.cpb_mlp(torch.tensor(x, dtype=q.dtype))[h])

        return pair_term

    check_logits(encoding, pair_term_of, q_grid, k_grid)


def test_gradients():
    check_gradients(build(num_prefix_tokens=1), (2, 3), None)
    check_gradients(build(), (4, 4), (2, 2))


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
])
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)
