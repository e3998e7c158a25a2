"""SASA's row and column halves against loops from the paper."""
import pytest
import torch
from relative_checks import (
    GRIDS,
    check_autocast,
    check_forms,
    check_gradients,
    check_logits,
    clip,
    positions,
)

from mmposenc.encodings import SASARPE


def build(**options):
    return SASARPE(4, 2, **{'max_offset': (1, 3), 'num_prefix_tokens': 1, **options})


@pytest.mark.parametrize('shared_heads', [True, False])
@pytest.mark.parametrize(('q_grid', 'k_grid'), GRIDS)
@pytest.mark.parametrize('num_prefix_tokens', [0, 2])
def test_logits(shared_heads, q_grid, k_grid, num_prefix_tokens):
    encoding = build(shared_heads=shared_heads, num_prefix_tokens=num_prefix_tokens)
    queries, keys = positions(q_grid, k_grid, num_prefix_tokens)

    def pair_term_of(q, k):
        def pair_term(b, h, i, j):
            if queries[i] is None or keys[j] is None:
                return 0.0
            halves = []
            for axis, table in enumerate((encoding.row_table, encoding.col_table)):
                limit = encoding.limits[axis]
                row = clip(keys[j][axis] - queries[i][axis], limit) + limit
                halves.append(table[row] if shared_heads else table[h, row])
            return q[b, h, i] @ torch.cat(halves)

        return pair_term

    check_logits(encoding, pair_term_of, q_grid, k_grid)


@pytest.mark.parametrize('shared_heads', [True, False])
def test_gradients(shared_heads):
    check_gradients(build(shared_heads=shared_heads), (2, 3), None)
    check_gradients(build(shared_heads=shared_heads), (2, 4), (1, 2))


@pytest.mark.parametrize(('q_grid', 'k_grid'), GRIDS)
def test_forms(q_grid, k_grid):
    check_forms(build(), q_grid, k_grid)
    check_forms(build(shared_heads=False, num_prefix_tokens=0), q_grid, k_grid)


def test_autocast():
    check_autocast(build(), (3, 4), None)


@pytest.mark.parametrize(('sizes', 'options', 'message'), [
    ((5, 2), {}, r'head_dims=5 must be even'),
    ((4, 2), dict(max_offset=-1), r'max_offset=-1 must be a whole number >= 0'),
    ((4, 2), dict(max_offset=(1, 2, 3)), r'max_offset=\(1, 2, 3\)'),
    ((4, 0), {}, r'num_heads=0 must be >= 1'),
])
def test_bad_input(sizes, options, message):
    with pytest.raises(ValueError, match=message):
        SASARPE(*sizes, **options)
