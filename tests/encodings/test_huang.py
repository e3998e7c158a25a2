"""Huang's method 4 against loops from the paper."""
import pytest
from relative_checks import (
    GRIDS,
    check_autocast,
    check_forms,
    check_gradients,
    check_logits,
    clipped_row,
)

from mmposenc.encodings import HuangRPE


def build(**options):
    return HuangRPE(4, 2, **{'max_offset': 2, 'num_prefix_tokens': 1, **options})


@pytest.mark.parametrize('method', ['product', 'sequence'])
@pytest.mark.parametrize('shared_heads', [True, False])
@pytest.mark.parametrize(('q_grid', 'k_grid'), GRIDS)
@pytest.mark.parametrize('num_prefix_tokens', [0, 2])
def test_logits(method, shared_heads, q_grid, k_grid, num_prefix_tokens):
    """((q + a) . (k + a) - a . a - q . k) / sqrt(d), with q already divided by sqrt(d)."""
    encoding = build(method=method, shared_heads=shared_heads, num_prefix_tokens=num_prefix_tokens)

    def pair_term_of(q, k):
        q = q * 2.0  # sqrt(4): the paper's queries are not scaled

        def pair_term(b, h, i, j):
            row = clipped_row(encoding, q_grid, k_grid, i, j)
            a = encoding.table[row] if shared_heads else encoding.table[h, row]
            x, y = q[b, h, i], k[b, h, j]
            return ((x + a) @ (y + a) - a @ a - x @ y) / 2.0

        return pair_term

    check_logits(encoding, pair_term_of, q_grid, k_grid)


@pytest.mark.parametrize('method', ['product', 'sequence'])
def test_gradients(method):
    check_gradients(build(method=method), (2, 3), None)
    check_gradients(build(method=method, shared_heads=False), (2, 4), (1, 2))


@pytest.mark.parametrize(('q_grid', 'k_grid'), GRIDS)
def test_forms(q_grid, k_grid):
    check_forms(build(), q_grid, k_grid)
    check_forms(build(shared_heads=False, num_prefix_tokens=0), q_grid, k_grid)
    check_forms(build(method='sequence'), q_grid, k_grid)


def test_autocast():
    check_autocast(build(), (3, 4), None)


@pytest.mark.parametrize(('options', 'message'), [
    (dict(max_offset=-1), r'max_offset=-1 must be >= 0'),
    (dict(method='rows'), r"method='rows' must be"),
])
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)
