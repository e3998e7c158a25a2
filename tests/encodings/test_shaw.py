"""Shaw's relative encoding against loops from the paper's equations."""
import pytest
import torch
from relative_checks import (
    GRIDS,
    check_autocast,
    check_forms,
    check_gradients,
    check_logits,
    clipped_row,
    random_inputs,
)

from mmposenc.encodings import ShawRPE

OPTIONS = [dict(method='product'), dict(method='product', shared_heads=False),
           dict(method='sequence'), dict(method='sequence', shared_heads=False)]


def build(**options):
    return ShawRPE(4, 2, **{'max_offset': 2, 'num_prefix_tokens': 1, **options})


def vector(table, head, row):
    return table[row] if table.dim() == 2 else table[head, row]


@pytest.mark.parametrize('options', OPTIONS)
@pytest.mark.parametrize(('q_grid', 'k_grid'), GRIDS)
@pytest.mark.parametrize('num_prefix_tokens', [0, 2])
def test_key_term(options, q_grid, k_grid, num_prefix_tokens):
    encoding = build(num_prefix_tokens=num_prefix_tokens, **options)

    def pair_term_of(q, k):
        return lambda b, h, i, j: q[b, h, i] @ vector(
            encoding.key_table, h, clipped_row(encoding, q_grid, k_grid, i, j))

    check_logits(encoding, pair_term_of, q_grid, k_grid)
    assert encoding.values(torch.zeros(1), q_grid, k_grid) is None


@pytest.mark.parametrize('options', OPTIONS)
@pytest.mark.parametrize(('q_grid', 'k_grid'), GRIDS)
def test_value_term(options, q_grid, k_grid):
    encoding = build(on_keys=False, on_values=True, **options)
    q, k, _ = random_inputs(encoding, q_grid, k_grid)
    attn = torch.rand(2, 2, q.shape[2], k.shape[2], dtype=q.dtype)
    expected = torch.zeros_like(q)
    for h in range(2):
        for i in range(q.shape[2]):
            for j in range(k.shape[2]):
                row = clipped_row(encoding, q_grid, k_grid, i, j)
                weight = attn[:, h, i, j, None]
                expected[:, h, i] += weight * vector(encoding.value_table, h, row).detach()
    torch.testing.assert_close(encoding.values(attn, q_grid, k_grid), expected)
    assert encoding.logits(q, k, q_grid, k_grid) is None


@pytest.mark.parametrize('options', OPTIONS)
def test_gradients(options):
    check_gradients(build(on_values=True, **options), (2, 3), None)


@pytest.mark.parametrize(('q_grid', 'k_grid'), GRIDS)
def test_forms(q_grid, k_grid):
    check_forms(build(on_values=True), q_grid, k_grid)
    check_forms(build(shared_heads=False, num_prefix_tokens=0), q_grid, k_grid)
    check_forms(build(on_keys=False, on_values=True, shared_heads=False), q_grid, k_grid)
    check_forms(build(method='sequence'), q_grid, k_grid)


@pytest.mark.parametrize('method', ['product', 'sequence'])
def test_autocast(method):
    check_autocast(build(on_values=True, method=method), (3, 4), None)


def test_sequence_is_the_paper_on_one_row():
    """On a grid of one row the flattened sequence and the columns are the same thing."""
    sequence = build(method='sequence', num_prefix_tokens=0)
    product = build(method='product', num_prefix_tokens=0)
    q, k, _ = random_inputs(sequence, (1, 7), None)
    with torch.no_grad():
        product.double().key_table.zero_()
        product.key_table[2 * 5:2 * 5 + 5] = sequence.key_table
    torch.testing.assert_close(sequence.logits(q, k, (1, 7)), product.logits(q, k, (1, 7)))


@pytest.mark.parametrize(('options', 'message'), [
    (dict(max_offset=-1), r'max_offset=-1 must be >= 0'),
    (dict(method='cross'), r"method='cross' must be 'product' or 'sequence'"),
    (dict(on_keys=False), r'on_keys=False and on_values=False'),
    (dict(num_prefix_tokens=-1), r'num_prefix_tokens=-1 must be >= 0'),
])
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)
