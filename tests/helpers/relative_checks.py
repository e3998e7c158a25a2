"""Checks every relative encoding passes, against loops over pairs of tokens in plain Python."""
import itertools
import math
from contextlib import contextmanager
from unittest import mock

import torch

from mmposenc.attention import attend as attend_to_tokens
from mmposenc.attention import vector_terms
from mmposenc.attention.fast import thresholds
from mmposenc.attention.fast.sdpa import fits_attn_mask
from mmposenc.functional import Grid, as_grid, key_grid

#: (query grid, key grid): square, not square, one cell wide, keys pooled, keys at a fraction.
GRIDS = [
    ((3, 3), None),
    ((3, 5), None),
    ((1, 6), None),
    ((5, 1), None),
    ((4, 6), (2, 3)),
    ((4, 6), Grid(2, 2, 2.0, 3.0)),
    ((3, 5), (2, 4)),
]


def tokens_of(encoding, q):
    """As an argument, tokens in the dtype of an encoding: the queries of all heads."""
    like = next(encoding.parameters(), q) if encoding is not None else q
    return dict(tokens=q.transpose(1, 2).flatten(2).to(like.dtype))


def attend(q, k, v, encoding=None, *grids, **options):
    """The package's, with tokens."""
    return attend_to_tokens(q, k, v, encoding, *grids, **tokens_of(encoding, q), **options)


def terms_of(encoding, q_grid, k_grid=None):
    """The terms of an encoding on these grids, for tokens of ones."""
    query, some = as_grid(q_grid), next(encoding.parameters(), torch.zeros(()))
    tokens = some.new_ones(1, encoding.num_prefix_tokens + query.num_cells,
                        encoding.num_heads * getattr(encoding, 'head_dims', 4))
    return encoding.terms(query, key_grid(query, k_grid), tokens)


def cells(grid):
    """(row, column) in query units of every cell of a grid, prefix tokens not included."""
    grid = key_grid(grid, None)
    return [((r + 0.5) * grid.stride_h - 0.5, (c + 0.5) * grid.stride_w - 0.5)
            for r in range(grid.height) for c in range(grid.width)]


def positions(q_grid, k_grid, num_prefix_tokens):
    """Position of every query and of every key; None for prefix tokens."""
    prefix = [None] * num_prefix_tokens
    return prefix + cells(q_grid), prefix + cells(key_grid(q_grid, k_grid))


def clip(x, limit):
    return max(-limit, min(limit, round(x)))


def sequence_positions(q_grid, k_grid, num_prefix_tokens):
    """Places in the flattened sequence of queries, for queries and for keys."""
    height, width = q_grid
    queries = list(range(num_prefix_tokens + height * width))
    keys = list(range(num_prefix_tokens))
    for r, c in cells(key_grid(q_grid, k_grid)):
        row, col = min(max(round(r), 0), height - 1), min(max(round(c), 0), width - 1)
        keys.append(num_prefix_tokens + row * width + col)
    return queries, keys


def clipped_row(encoding, q_grid, k_grid, i, j):
    """Row that a pair uses of the table of an encoding with clipped offsets (Shaw, Huang)."""
    limit, prefix = encoding.max_offset, encoding.num_prefix_tokens
    if encoding.method == 'sequence':
        queries, keys = sequence_positions(q_grid, k_grid, prefix)
        return clip(keys[j] - queries[i], limit) + limit
    queries, keys = positions(q_grid, k_grid, prefix)
    if queries[i] is None or keys[j] is None:
        return (2 * limit + 1) ** 2
    row, col = (clip(keys[j][axis] - queries[i][axis], limit) + limit for axis in (0, 1))
    return row * (2 * limit + 1) + col


def random_inputs(encoding, q_grid, k_grid, *, batch=2, dtype=torch.float64, seed=0):
    """q, k, v and parameters drawn at random; the parameters are set in place."""
    generator = torch.Generator().manual_seed(seed)
    heads, dims = getattr(encoding, 'num_heads', 2), getattr(encoding, 'head_dims', 4)
    prefix = encoding.num_prefix_tokens
    len_q = prefix + as_grid(q_grid, any_axes=True).num_cells
    len_k = prefix + key_grid(q_grid, k_grid).num_cells
    encoding.to(dtype)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=dtype))
    shapes = [(batch, heads, length, dims) for length in (len_q, len_k, len_k)]
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


def naive_logits(pair_term, q, k):
    """pair_term(batch, head, i, j) for every pair."""
    out = torch.zeros(q.shape[0], q.shape[1], q.shape[2], k.shape[2], dtype=q.dtype)
    for pair in itertools.product(*map(range, out.shape)):
        out[pair] = pair_term(*pair)
    return out


def check_logits(encoding, pair_term_of, q_grid, k_grid):
    """The encoding's logits equal the naive loop's; ``pair_term_of(q, k)`` gives its pair_term."""
    q, k, _ = random_inputs(encoding, q_grid, k_grid)
    with torch.no_grad():
        expected = naive_logits(pair_term_of(q, k), q, k)
        got = encoding.logits(q, k, q_grid, k_grid)
    assert got.shape[1:] == expected.shape[1:] and got.shape[0] in (1, q.shape[0])
    torch.testing.assert_close(got.expand_as(expected), expected, atol=1e-10, rtol=1e-8)


def check_formula(encoding, formula_of, q_grid, k_grid):
    """The same, where ``formula_of(encoding, grids)`` is one of (query, key, head, i, j)."""
    def pair_term_of(q, k):
        formula = formula_of(encoding, (q_grid, k_grid))
        return lambda b, h, i, j: formula(q[b, h, i], k[b, h, j], h, i, j)
    check_logits(encoding, pair_term_of, q_grid, k_grid)


@contextmanager
def chunks_of(elements, *, long, keep, rows=None):
    """Chunks of at most so many logits of float64 (``rows``: of one head), tables read by rows of
    keys or by pairs, weights kept or computed again; the definition never chosen for being small.
    """
    least = 0 if long else 10 ** 9
    with mock.patch.multiple(
            thresholds, CHUNK_BYTES=8 * elements, ROWS_BYTES=8 * (rows or elements),
            KEPT_BYTES=2 ** 40 if keep else 0, REFERENCE_BYTES=0,
            RUNS_FROM=least, RUNS_WITH_VALUES_FROM=least, SHIFTS_FROM=least), (
            mock.patch.object(vector_terms, 'HALVES_FROM', least)):
        yield


class LargestStorage(torch.utils._python_dispatch.TorchDispatchMode):
    """Notes the bytes of the largest tensor that an operation gives."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for each in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(each, torch.Tensor):
                self.bytes = max(self.bytes, each.untyped_storage().nbytes())
        return out


#: Arguments of :func:`chunks_of`: one row or query at a time, some of several heads (kept weights
#: then lie apart in memory), several heads, all.
CHUNKS = [dict(elements=1, long=True, keep=False),
          dict(elements=200, rows=60, long=True, keep=True),
          dict(elements=600, long=True, keep=False), dict(elements=40, long=False, keep=False),
          dict(elements=10 ** 6, long=False, keep=True)]


def results(encoding, inputs, q_grid=None, k_grid=None, **options):
    """Output and all gradients; without an encoding there are no grids."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    out, _ = attend(*leaves, encoding, q_grid, k_grid, **options)
    parameters = [] if encoding is None else list(encoding.parameters())
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape).cos()
    return [out, *torch.autograd.grad((out * weights).sum(), [*leaves, *parameters],
                                      materialize_grads=True)]


def some_padding(encoding, k, q_grid, k_grid):
    """Of two images: the first is padding alone, the second's valid keys are no rectangle; half the
    rows of the first where each image's own grid counts, and none if keys lie on another one, by
    which that is not told."""
    prefix = encoding.num_prefix_tokens
    padding = torch.zeros(2, k.shape[2], dtype=torch.bool)
    if encoding.cellwise:
        padding[0], padding[1, prefix + 1::3] = True, True
    elif k_grid is None:
        padding[0, prefix:].view(q_grid)[math.ceil(q_grid[0] / 2):] = True
    else:
        return None
    return padding


def close(got, expected, **tolerance):
    torch.testing.assert_close(got, expected, **(tolerance or dict(atol=1e-10, rtol=1e-8)))


def check_implementations(encoding, q_grid, k_grid):
    """Chunks of every size equal the definition, with and without padded keys, forward and
    backward; so does what attention chooses, and terms that can be the mask of SDPA."""
    inputs = random_inputs(encoding, q_grid, k_grid)
    own = [term for term in terms_of(encoding, q_grid, k_grid) if term.reads_weights]
    for mask in (None, some_padding(encoding, inputs[1], q_grid, k_grid)):
        options = dict(key_padding_mask=mask)
        expected = results(encoding, inputs, q_grid, k_grid, implementation='reference', **options)
        if mask is not None and encoding.cellwise:
            assert not expected[0][0].any()  # An image of padding alone gets zeros.
        for number, cut in enumerate(CHUNKS):
            with chunks_of(**cut):
                close(results(encoding, inputs, q_grid, k_grid, **options,
                              implementation='auto' if number == 0 else 'chunked'), expected)
        if all(map(fits_attn_mask, own)):
            close(results(encoding, inputs, q_grid, k_grid, implementation='sdpa', **options),
                  expected)
