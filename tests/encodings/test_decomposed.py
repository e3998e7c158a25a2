"""Decomposed relative positions against loops from the paper and against timm's functions."""
import pytest
import torch
from relative_checks import (
    GRIDS,
    check_autocast,
    check_forms,
    check_gradients,
    check_logits,
    random_inputs,
)

import mmposenc  # noqa: F401  before timm
from mmposenc.encodings import DecomposedRPE
from mmposenc.functional import key_grid


def build(**options):
    return DecomposedRPE(4, 2, **{'grid_shape': (3, 5), 'num_prefix_tokens': 1, **options})


def resized(table, length):
    """Entry i of the new table lies at (i + .5) * old / new - .5 in the old one."""
    rows = []
    for i in range(length):
        at = min(max((i + 0.5) * len(table) / length - 0.5, 0.0), len(table) - 1.0)
        low = int(at)
        high = min(low + 1, len(table) - 1)
        rows.append(table[low] * (1 - at + low) + table[high] * (at - low))
    return torch.stack(rows)


def entry(query, key, num_queries, num_keys, stride):
    """Which vector a pair of places on an axis has, in cells of the finer grid."""
    offset = (query * max(1 / stride, 1) - key * max(stride, 1)
              + (num_keys - 1) * max(stride, 1))
    return min(max(int(offset + 1e-9), 0), 2 * max(num_queries, num_keys) - 2)


@pytest.mark.parametrize('shared_heads', [True, False])
@pytest.mark.parametrize(('q_grid', 'k_grid'), [*GRIDS, ((2, 3), (4, 3))])
@pytest.mark.parametrize('num_prefix_tokens', [0, 2])
def test_logits(shared_heads, q_grid, k_grid, num_prefix_tokens):
    encoding = build(shared_heads=shared_heads, num_prefix_tokens=num_prefix_tokens)
    key = key_grid(q_grid, k_grid)
    places = {'q': [(r, c) for r in range(q_grid[0]) for c in range(q_grid[1])],
              'k': [(r, c) for r in range(key.height) for c in range(key.width)]}

    def pair_term_of(q, k):
        axes = []
        for axis, table in enumerate((encoding.row_table, encoding.col_table)):
            by_head = [table] * 2 if shared_heads else list(table)
            length = 2 * max(q_grid[axis], key[axis]) - 1
            axes.append([resized(each, length) for each in by_head])

        def pair_term(b, h, i, j):
            if min(i, j) < num_prefix_tokens:
                return 0.0
            query, other = places['q'][i - num_prefix_tokens], places['k'][j - num_prefix_tokens]
            vectors = [axes[axis][h][entry(query[axis], other[axis], q_grid[axis], key[axis],
                                           key[2 + axis])] for axis in (0, 1)]
            # q comes scaled; the term is that of the query as it is.
            return q[b, h, i] * 2.0 @ (vectors[0] + vectors[1])

        return pair_term

    check_logits(encoding, pair_term_of, q_grid, k_grid)


@pytest.mark.parametrize(('q_grid', 'k_grid'), [
    ((3, 5), (3, 5)), ((7, 4), (7, 4)), ((1, 9), (1, 9)), ((6, 8), (3, 2)), ((3, 2), (6, 8)),
    ((7, 5), (3, 4))])
def test_equals_timms(q_grid, k_grid):
    from timm.models.vision_transformer_sam import get_decomposed_rel_pos_bias
    encoding = DecomposedRPE(4, 1, grid_shape=(3, 5))
    q, k, _ = random_inputs(encoding, q_grid, k_grid)
    expected = get_decomposed_rel_pos_bias(q[:, 0], encoding.row_table, encoding.col_table,
                                           q_grid, k_grid)
    got = encoding.logits(q * 4 ** -0.5, k, q_grid, k_grid)
    torch.testing.assert_close(got[:, 0], expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize('shared_heads', [True, False])
def test_gradients(shared_heads):
    check_gradients(build(shared_heads=shared_heads), (3, 5), None)
    check_gradients(build(shared_heads=shared_heads, num_prefix_tokens=0), (4, 2), None)
    check_gradients(build(shared_heads=shared_heads), (2, 4), (1, 2))


@pytest.mark.parametrize(('q_grid', 'k_grid'), GRIDS)
def test_forms(q_grid, k_grid):
    check_forms(build(), q_grid, k_grid)
    check_forms(build(shared_heads=False, num_prefix_tokens=0), q_grid, k_grid)


def test_autocast():
    check_autocast(build(), (3, 5), None)
    check_autocast(build(), (4, 4), None)


def test_starts_without_effect():
    assert all(not table.any() for table in build().parameters())


@pytest.mark.parametrize(('sizes', 'options', 'message'), [
    ((4, 0), {}, r'num_heads=0 must be >= 1'),
    ((4, 2), dict(grid_shape=(0, 3)), r'grid_shape=\(0, 3\) must be at least \(1, 1\)'),
    ((4, 2), dict(num_prefix_tokens=-1), r'num_prefix_tokens=-1 must be >= 0'),
])
def test_bad_input(sizes, options, message):
    with pytest.raises(ValueError, match=message):
        DecomposedRPE(*sizes, **{'grid_shape': (3, 5), **options})
