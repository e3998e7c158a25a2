"""Runs of buckets, and what is kept of them between calls."""
import pytest
import torch

from mmposenc.attention.fast.layout import Cut, Layout, groups
from mmposenc.attention.fast.runs import Runs, RunsByKey, row_patterns
from mmposenc.attention.fast.table_writers import PairIndex
from mmposenc.functional import Grid
from mmposenc.functional.buckets import Buckets, bucket_params
from mmposenc.functional.grid_cache import CACHE

CPU = torch.device('cpu')
GRIDS = [(Grid(3, 5), Grid(3, 5)), (Grid(1, 4), Grid(1, 4)), (Grid(5, 1), Grid(5, 1)),
         (Grid(4, 6), Grid(2, 3, 2.0, 2.0)), (Grid(4, 6), Grid(3, 2, 4 / 3, 3.0))]


@pytest.mark.parametrize('method', ['product', 'euclidean', 'quantization'])
@pytest.mark.parametrize('reverse', [False, True])
@pytest.mark.parametrize('query,key', GRIDS)
def test_expand_spreads_buckets_over_keys(method, reverse, query, key):
    """Look-ups that hold the bucket's own number expand to the buckets of the keys."""
    buckets = Buckets(method, bucket_params(1.9), query, key, reverse=reverse)
    patterns = row_patterns(buckets, torch.double, CPU)
    lookup = torch.arange(buckets.num, dtype=torch.double).expand(query.width, 1, -1)
    runs, ids = patterns.expand(lookup), buckets.ids(CPU)
    for i in range(query.num_cells):
        for j in range(key.num_cells):
            pattern = patterns.pattern[i // query.width, j // key.width]
            assert runs[i % query.width, 0, pattern, j % key.width] == ids[i, j]


@pytest.mark.parametrize('method', ['product', 'euclidean'])
@pytest.mark.parametrize('prefix', [0, 2])
@pytest.mark.parametrize('query,key', GRIDS)
@pytest.mark.parametrize('elements', [1, 150, 10 ** 6])
def test_runs_and_pairs_read_alike_and_are_adjoint(method, prefix, query, key, elements):
    buckets = Buckets(method, bucket_params(1.9), query, key, prefix)
    filled = Layout(query, key, prefix, prefix + query.num_cells, prefix + key.num_cells, True)
    ids = filled.arrange(buckets.ids(CPU), -1)
    for by_key in (False, True):
        spreads = [PairIndex(buckets, filled, by_key, CPU),
                   (RunsByKey if by_key else Runs)(buckets, filled, torch.double, CPU)]
        for _, pieces in groups(1, 3, filled, Cut(elements, elements, True)):
            tokens = filled.num_keys if by_key else filled.len_q
            lookup = torch.randn(3, tokens, buckets.num, dtype=torch.double)
            for spread in spreads:
                sums = []
                for piece in pieces:
                    own = lookup[piece.heads]
                    out = torch.empty(piece.size, piece.queries.stop - piece.queries.start,
                                      filled.num_keys, dtype=torch.double)
                    spread.read(spread.expand(own) if by_key else own[:, piece.queries],
                                piece, out)
                    some = ids[piece.queries]
                    rows = torch.arange(piece.queries.start, piece.queries.stop)
                    expected = own[:, torch.arange(some.shape[1]), some] if by_key else own[
                        :, rows[:, None], some]
                    real = slice(0, filled.len_k)  # what fills up is masked
                    assert torch.equal(out[..., real], expected[..., real])
                    weights = torch.randn_like(out)
                    weights[..., filled.len_k:] = 0.0
                    total = spread.sums(weights, piece)
                    total = spread.contract(total) if by_key else total
                    against = own if by_key else own[:, piece.queries]
                    torch.testing.assert_close((weights * out)[..., real].sum(),
                                               (total * against).sum())
                    sums.append(total)


def test_what_is_kept_depends_on_every_field():
    """A key of the cache that left out a field would hand one encoding the patterns of another."""
    CACHE.clear()
    base = Buckets('product', bucket_params(1.9), Grid(4, 6), Grid(4, 6))
    others = [base, base._replace(method='euclidean'), base._replace(reverse=True),
              base._replace(params=bucket_params(1.0)), base._replace(query=Grid(6, 4)),
              base._replace(key=Grid(2, 3, 2.0, 2.0)), base._replace(
                  params=bucket_params(1.9, index='clip')), base._replace(prefix=1)]
    fresh = []
    for each in others:
        CACHE.clear()
        fresh.append((row_patterns(each, torch.double, CPU), each.ids(CPU)))
    CACHE.clear()
    for _ in range(2):
        for each, (patterns, ids) in zip(others, fresh, strict=True):
            kept = row_patterns(each, torch.double, CPU)
            assert torch.equal(kept.pattern, patterns.pattern)
            assert torch.equal(kept.columns, patterns.columns)
            assert torch.equal(each.ids(CPU), ids)
    assert row_patterns(base, torch.float, CPU).columns.dtype == torch.float
