"""Swin's and BEiT's bias tables against mmpretrain's and timm's and against loops."""
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
from mmposenc.functional.bias_tables import resize_bias_table


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


@pytest.mark.parametrize('grid', [(4, 5), (5, 5), (3, 7), (9, 2), (1, 6)])
def test_equals_timm_of_any_size(grid):
    """BEiT's table, its three rows of the class token last, made for 4 x 5 cells and resized by
    timm to the grid: biases of all pairs, and gradients of the old table through those of timm's
    new one, which is linear in the old."""
    beit = pytest.importorskip('timm.models.beit')
    resize = pytest.importorskip('timm.layers.pos_embed_rel').resize_rel_pos_bias_table
    theirs = beit.RelativePositionBias((4, 5), 2)
    old = torch.nn.init.normal_(theirs.relative_position_bias_table).detach().clone()
    ours = RelativePositionBias(2, window_size=(4, 5), num_prefix_tokens=1, resize='geometric')
    with torch.no_grad():
        ours.relative_position_bias_table.copy_(old[:-3])
        ours.prefix_bias.copy_(old[-3:].t())
    theirs.set_window_size(grid)
    q = torch.zeros(1, 2, 1 + grid[0] * grid[1], 4)
    expected, got = theirs(), ours.logits(q, q, grid)[0]
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
    weights = torch.randn(expected.shape)
    new_grad, = torch.autograd.grad((expected * weights).sum(), list(theirs.parameters()))
    units = torch.cat((torch.eye(63), torch.zeros(3, 63)))  # the resized table of each old entry
    moved = resize(units, grid, (len(new_grad), 63), old_window_size=(4, 5))[:-3]
    table_grad, prefix_grad = torch.autograd.grad((got * weights).sum(), [
        ours.relative_position_bias_table, ours.prefix_bias])
    torch.testing.assert_close(table_grad, moved.t() @ new_grad[:-3], atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(prefix_grad, new_grad[-3:].t(), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize('resize', [None, 'geometric', 'geometric-cubic', 'bicubic'])
@pytest.mark.parametrize(('q_grid', 'k_grid'), GRIDS)
@pytest.mark.parametrize('num_prefix_tokens', [0, 2])
def test_logits(resize, q_grid, k_grid, num_prefix_tokens):
    encoding = build(num_prefix_tokens=num_prefix_tokens, resize=resize)
    height, width = (5, 6) if resize is None else q_grid
    queries, keys = positions(q_grid, k_grid, num_prefix_tokens)

    def pair_term_of(q, k):
        table = encoding.relative_position_bias_table.t().reshape(2, 9, 11)
        if resize is not None:
            table = resize_bias_table(table, q_grid, resize)

        def pair_term(b, h, i, j):
            if queries[i] is None or keys[j] is None:
                kind = 2 if queries[i] is None and keys[j] is None else int(queries[i] is not None)
                return encoding.prefix_bias[h, kind]
            row = round(queries[i][0] - keys[j][0]) + height - 1
            col = round(queries[i][1] - keys[j][1]) + width - 1
            return table[h, row, col]

        return pair_term

    check_logits(encoding, pair_term_of, q_grid, k_grid)


@pytest.mark.parametrize('num_prefix_tokens', [0, 1])
def test_gradients(num_prefix_tokens):
    for resize in ('geometric', 'geometric-cubic', 'bicubic'):
        check_gradients(build(num_prefix_tokens=num_prefix_tokens, resize=resize), (2, 7), None)
    check_gradients(build(num_prefix_tokens=num_prefix_tokens), (2, 3), None)
    check_gradients(build(num_prefix_tokens=num_prefix_tokens), (4, 4), (2, 2))


@pytest.mark.parametrize(('q_grid', 'k_grid'), GRIDS)
def test_forms(q_grid, k_grid):
    check_forms(build(resize='geometric'), q_grid, k_grid)
    check_forms(build(), q_grid, k_grid)
    check_forms(build(num_prefix_tokens=1), q_grid, k_grid)


def test_autocast():
    check_autocast(build(), (3, 4), None)
    check_autocast(build(resize='geometric'), (3, 4), None)


def test_bad_input():
    with pytest.raises(ValueError, match=r'window_size=\(0, 3\) must be at least \(1, 1\)'):
        build(window_size=(0, 3))
    with pytest.raises(ValueError, match=r'num_heads=0 must be >= 1'):
        RelativePositionBias(0, window_size=(7, 7))
    q = torch.zeros(1, 2, 30, 4)
    with pytest.raises(ValueError, match=r'q_grid=\(6, 5\) must fit into window_size=\(5, 6\)'):
        build().logits(q, q, (6, 5))


    with pytest.raises(ValueError, match=r"resize='linear' must be None or one of 'bicubic', 'geo"):
        build(resize='linear')
    with pytest.raises(ValueError, match=r'sides must not be 2'):
        build(resize='geometric-cubic', window_size=(2, 5))


def test_a_bias_may_leave_prefix_tokens_alone():
    encoding = RelativePositionBias(2, window_size=(2, 3), num_prefix_tokens=1, prefix_bias=False)
    assert [name for name, _ in encoding.named_parameters()] == ['relative_position_bias_table']
    q = torch.zeros(1, 2, 7, 4)
    logits = encoding.logits(q, q, (2, 3))
    assert not logits[:, :, 0].any() and not logits[:, :, :, 0].any()
    whole = RelativePositionBias(2, window_size=(2, 3), num_prefix_tokens=1)
    whole.relative_position_bias_table.data = encoding.relative_position_bias_table.data
    torch.testing.assert_close(logits[:, :, 1:, 1:], whole.logits(q, q, (2, 3))[:, :, 1:, 1:])
