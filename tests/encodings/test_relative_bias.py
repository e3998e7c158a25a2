"""Swin's bias table against mmpretrain's and against loops from the paper."""
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

from mmposenc.encodings import RelativePositionBias


def build(**options):
    encoding = RelativePositionBias(2, **{'window_size': (5, 6), **options})
    encoding.head_dims = 4  # for the checks
    return encoding


@pytest.mark.parametrize('window_size', [(4, 4), (3, 5), (1, 6)])
def test_equals_mmpretrain(window_size):
    attention = pytest.importorskip('mmpretrain.models.utils.attention')
    theirs = attention.WindowMSA(8, window_size, 2)
    ours = RelativePositionBias(2, window_size=window_size)
    torch.nn.init.normal_(ours.relative_position_bias_table)
    index = theirs.relative_position_index
    expected = ours.relative_position_bias_table[index].permute(2, 0, 1)
    q = torch.zeros(1, 2, index.shape[0], 4)
    torch.testing.assert_close(ours.logits(q, q, window_size)[0], expected, atol=0, rtol=0)


@pytest.mark.parametrize(('q_grid', 'k_grid'), GRIDS)
@pytest.mark.parametrize('num_prefix_tokens', [0, 2])
def test_logits(q_grid, k_grid, num_prefix_tokens):
    encoding = build(num_prefix_tokens=num_prefix_tokens)
    queries, keys = positions(q_grid, k_grid, num_prefix_tokens)

    def pair_term_of(q, k):
        def pair_term(b, h, i, j):
            if queries[i] is None or keys[j] is None:
                kind = 2 if queries[i] is None and keys[j] is None else int(queries[i] is not None)
                return encoding.prefix_bias[h, kind]
            row = round(queries[i][0] - keys[j][0]) + 4
            col = round(queries[i][1] - keys[j][1]) + 5
            return encoding.relative_position_bias_table[row * 11 + col, h]

        return pair_term

    check_logits(encoding, pair_term_of, q_grid, k_grid)


@pytest.mark.parametrize('num_prefix_tokens', [0, 1])
def test_gradients(num_prefix_tokens):
    check_gradients(build(num_prefix_tokens=num_prefix_tokens), (2, 3), None)
    check_gradients(build(num_prefix_tokens=num_prefix_tokens), (4, 4), (2, 2))


@pytest.mark.parametrize(('q_grid', 'k_grid'), GRIDS)
def test_forms(q_grid, k_grid):
    check_forms(build(), q_grid, k_grid)
    check_forms(build(num_prefix_tokens=1), q_grid, k_grid)


def test_autocast():
    check_autocast(build(), (3, 4), None)


def test_bad_input():
    with pytest.raises(ValueError, match=r'window_size=\(0, 3\) must be at least \(1, 1\)'):
        build(window_size=(0, 3))
    with pytest.raises(ValueError, match=r'num_heads=0 must be >= 1'):
        RelativePositionBias(0, window_size=(7, 7))
    q = torch.zeros(1, 2, 30, 4)
    with pytest.raises(ValueError, match=r'q_grid=\(6, 5\) must fit into window_size=\(5, 6\)'):
        build().logits(q, q, (6, 5))


def test_a_bias_may_leave_prefix_tokens_alone():
    encoding = RelativePositionBias(2, window_size=(2, 3), num_prefix_tokens=1, prefix_bias=False)
    assert [name for name, _ in encoding.named_parameters()] == ['relative_position_bias_table']
    q = torch.zeros(1, 2, 7, 4)
    logits = encoding.logits(q, q, (2, 3))
    assert not logits[:, :, 0].any() and not logits[:, :, :, 0].any()
    whole = RelativePositionBias(2, window_size=(2, 3), num_prefix_tokens=1)
    whole.relative_position_bias_table.data = encoding.relative_position_bias_table.data
    torch.testing.assert_close(logits[:, :, 1:, 1:], whole.logits(q, q, (2, 3))[:, :, 1:, 1:])
