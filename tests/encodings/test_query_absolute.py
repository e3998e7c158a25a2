"""The AI Summer query-absolute embedding against its release and against loops."""
import pytest
import torch
from golden import assert_released, load_golden
from relative_checks import GRIDS, check_autocast, check_forms, check_gradients, check_logits

from mmposenc.encodings import QueryAbsolute1D


def build(**options):
    return QueryAbsolute1D(4, 2, **{'max_tokens': 26, 'num_prefix_tokens': 1, **options})


def test_golden():
    _, data = load_golden('blog_1d_6')
    q = data['q']
    encoding = QueryAbsolute1D(q.shape[-1], q.shape[1], max_tokens=q.shape[2])
    encoding.load_state_dict({'table': data['abs_table']})
    assert_released(encoding.logits(q, q, (2, 3)), data['abs'])


@pytest.mark.parametrize('shared_heads', [True, False])
@pytest.mark.parametrize(('q_grid', 'k_grid'), GRIDS)
@pytest.mark.parametrize('num_prefix_tokens', [0, 2])
def test_logits(shared_heads, q_grid, k_grid, num_prefix_tokens):
    encoding = build(shared_heads=shared_heads, num_prefix_tokens=num_prefix_tokens)

    def pair_term_of(q, k):
        return lambda b, h, i, j: q[b, h, i] @ (
            encoding.table[j] if shared_heads else encoding.table[h, j])

    check_logits(encoding, pair_term_of, q_grid, k_grid)


@pytest.mark.parametrize('shared_heads', [True, False])
def test_gradients(shared_heads):
    check_gradients(build(shared_heads=shared_heads), (2, 3), None)


@pytest.mark.parametrize(('q_grid', 'k_grid'), GRIDS)
def test_forms(q_grid, k_grid):
    check_forms(build(), q_grid, k_grid)
    check_forms(build(shared_heads=False), q_grid, k_grid)


def test_autocast():
    check_autocast(build(), (3, 4), None)


def test_bad_input():
    with pytest.raises(ValueError, match=r'max_tokens=0 must be >= 1'):
        build(max_tokens=0)
    q = torch.zeros(1, 2, 31, 4)
    with pytest.raises(ValueError, match=r'k_grid=\(5, 6\) and num_prefix_tokens=1 make 31 tokens'):
        build().logits(q, q, (5, 6))
