"""The AI Summer query-relative embeddings against their release and against loops."""
import pytest
import torch
from golden import assert_released, load_golden
from relative_checks import (
    GRIDS,
    check_autocast,
    check_forms,
    check_gradients,
    check_logits,
    positions,
    sequence_positions,
)

from mmposenc.encodings import QueryRelative1D, QueryRelative2D


def build_1d(**options):
    return QueryRelative1D(4, 2, **{'max_tokens': 30, 'num_prefix_tokens': 1, **options})


def build_2d(**options):
    return QueryRelative2D(4, 2, **{'max_size': (5, 6), 'num_prefix_tokens': 1, **options})


def test_golden_1d():
    _, data = load_golden('blog_1d_6')
    q, table = data['q'], data['rel_table']
    encoding = QueryRelative1D(q.shape[-1], q.shape[1], max_tokens=q.shape[2])
    encoding.load_state_dict({'table': table})
    assert_released(encoding.logits(q, q, (1, 6)), data['rel'])
    # A longer table: the middle of it is the one a shorter sequence uses.
    longer = QueryRelative1D(q.shape[-1], q.shape[1], max_tokens=9)
    longer.load_state_dict({'table': torch.nn.functional.pad(table, (0, 0, 3, 3))})
    assert_released(longer.logits(q, q, (2, 3)), data['rel'])


@pytest.mark.parametrize('shared_heads', [True, False])
@pytest.mark.parametrize(('q_grid', 'k_grid'), GRIDS)
@pytest.mark.parametrize('num_prefix_tokens', [0, 2])
def test_logits_1d(shared_heads, q_grid, k_grid, num_prefix_tokens):
    encoding = build_1d(shared_heads=shared_heads, num_prefix_tokens=num_prefix_tokens)
    queries, keys = sequence_positions(q_grid, k_grid, num_prefix_tokens)

    def pair_term_of(q, k):
        def pair_term(b, h, i, j):
            table = encoding.table if shared_heads else encoding.table[h]
            return q[b, h, i] @ table[keys[j] - queries[i] + 29]

        return pair_term

    check_logits(encoding, pair_term_of, q_grid, k_grid)


@pytest.mark.parametrize('shared_heads', [True, False])
@pytest.mark.parametrize(('q_grid', 'k_grid'), GRIDS)
@pytest.mark.parametrize('num_prefix_tokens', [0, 2])
def test_logits_2d(shared_heads, q_grid, k_grid, num_prefix_tokens):
    encoding = build_2d(shared_heads=shared_heads, num_prefix_tokens=num_prefix_tokens)
    queries, keys = positions(q_grid, k_grid, num_prefix_tokens)

    def pair_term_of(q, k):
        def pair_term(b, h, i, j):
            if queries[i] is None or keys[j] is None:
                return 0.0
            row = round(keys[j][0] - queries[i][0]) + 4
            col = round(keys[j][1] - queries[i][1]) + 5
            tables = encoding.row_table, encoding.col_table
            rows, cols = tables if shared_heads else (table[h] for table in tables)
            return q[b, h, i] @ (rows[row] + cols[col])

        return pair_term

    check_logits(encoding, pair_term_of, q_grid, k_grid)


@pytest.mark.parametrize('build', [build_1d, build_2d])
@pytest.mark.parametrize('shared_heads', [True, False])
def test_gradients(build, shared_heads):
    check_gradients(build(shared_heads=shared_heads), (2, 3), None)
    check_gradients(build(shared_heads=shared_heads), (4, 4), (2, 2))


@pytest.mark.parametrize(('q_grid', 'k_grid'), GRIDS)
def test_forms_2d(q_grid, k_grid):
    check_forms(build_2d(), q_grid, k_grid)
    check_forms(build_2d(shared_heads=False, num_prefix_tokens=0), q_grid, k_grid)


@pytest.mark.parametrize('build', [build_1d, build_2d])
def test_autocast(build):
    check_autocast(build(), (3, 4), None)


def test_too_large_grids():
    q = torch.zeros(1, 2, 31, 4)
    with pytest.raises(ValueError, match=r'q_grid=\(5, 6\) and num_prefix_tokens=1 make 31 tokens; '
                                         r'the table has max_tokens=30'):
        build_1d().logits(q, q, (5, 6))
    with pytest.raises(ValueError, match=r'q_grid=\(6, 5\) must fit into max_size=\(5, 6\)'):
        build_2d().logits(q, q, (6, 5))


def test_bad_options():
    with pytest.raises(ValueError, match=r'max_tokens=0 must be >= 1'):
        build_1d(max_tokens=0)
    with pytest.raises(ValueError, match=r'max_size=\(0, 3\)'):
        build_2d(max_size=(0, 3))


@pytest.mark.parametrize('shared_heads', [True, False])
@pytest.mark.parametrize('q_grid', [(3, 3), (3, 5), (1, 6), (5, 1)])
def test_forms_1d(shared_heads, q_grid):
    encoding = build_1d(shared_heads=shared_heads)
    check_forms(encoding, q_grid, None)
    check_forms(encoding, q_grid, (2, 3))
