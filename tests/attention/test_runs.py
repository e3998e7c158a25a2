"""What attention keeps between calls; numbers of its chunks: test_engines.py."""
import torch

from mmposenc.attention.fast.runs import row_patterns
from mmposenc.functional import Grid
from mmposenc.functional.buckets import Buckets, bucket_params
from mmposenc.functional.grids import CACHE

CPU = torch.device('cpu')


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
