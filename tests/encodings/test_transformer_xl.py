"""Transformer-XL's terms (b), (c) and (d) against loops from the paper."""
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
    sequence_positions,
)

from mmposenc.encodings import TransformerXLRPE


def build(**options):
    return TransformerXLRPE(4, 2, **{'num_prefix_tokens': 1, **options})


def sincos(offset, width):
    angles = [offset / 10000 ** (2 * t / width) for t in range(width // 2)]
    return [math.sin(a) for a in angles] + [math.cos(a) for a in angles]


@pytest.mark.parametrize('method', ['axes', 'sequence'])
@pytest.mark.parametrize(('q_grid', 'k_grid'), GRIDS)
@pytest.mark.parametrize('num_prefix_tokens', [0, 2])
def test_logits(method, q_grid, k_grid, num_prefix_tokens):
    encoding = build(method=method, num_prefix_tokens=num_prefix_tokens)
    places = positions if method == 'axes' else sequence_positions
    queries, keys = places(q_grid, k_grid, num_prefix_tokens)

    def embedding(i, j):
        """R[i - j], or None where the pair has none."""
        if method == 'sequence':
            return sincos(queries[i] - keys[j], 8)
        if queries[i] is None or keys[j] is None:
            return None
        return (sincos(queries[i][0] - keys[j][0], 4) + sincos(queries[i][1] - keys[j][1], 4))

    def pair_term_of(q, k):
        def pair_term(b, h, i, j):
            scale = 4 ** -0.5
            u, v = encoding.content_bias[h], encoding.position_bias[h]
            term = u @ k[b, h, j] * scale  # (c)
            encoded = embedding(i, j)
            if encoded is None:
                return term
            r = encoding.pos_proj.weight @ torch.tensor(encoded, dtype=q.dtype)
            r = r[h * 4:h * 4 + 4]
            return q[b, h, i] @ r + term + v @ r * scale  # (b), (c), (d); q comes scaled

        return pair_term

    check_logits(encoding, pair_term_of, q_grid, k_grid)


@pytest.mark.parametrize('method', ['axes', 'sequence'])
def test_gradients(method):
    check_gradients(build(method=method), (2, 3), None)
    check_gradients(build(method=method), (2, 4), (1, 2))


@pytest.mark.parametrize(('q_grid', 'k_grid'), GRIDS)
def test_forms(q_grid, k_grid):
    check_forms(build(), q_grid, k_grid)
    check_forms(build(num_prefix_tokens=0), q_grid, k_grid)


@pytest.mark.parametrize('q_grid,k_grid', GRIDS)
def test_forms_of_a_sequence(q_grid, k_grid):
    check_forms(build(method='sequence'), q_grid, k_grid)


@pytest.mark.parametrize('method', ['axes', 'sequence'])
def test_autocast(method):
    check_autocast(build(method=method), (3, 4), None)


def test_position_tables_leave_the_projection_to_weight_decay():
    assert [name for name, _ in build().position_tables()] == ['content_bias', 'position_bias']


@pytest.mark.parametrize(('sizes', 'options', 'message'), [
    ((3, 2), {}, r'head_dims=3 \* num_heads=2 must be a multiple of 4'),
    ((4, 2), dict(method='grid'), r"method='grid' must be 'axes' or 'sequence'"),
])
def test_bad_input(sizes, options, message):
    with pytest.raises(ValueError, match=message):
        TransformerXLRPE(*sizes, **options)
