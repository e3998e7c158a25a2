"""Multiply-accumulates against sums written out. Those of papers: tests/configs/test_papers.py."""
import pytest

from mmposenc.backbones import DeiT, count_macs


@pytest.mark.parametrize('method', ['product', 'cross'])
def test_every_product_is_counted(method):
    """A DeiT of one block, written out; non-square image, whole patches."""
    dims, hidden, hw = 24, 48, (32, 48)
    cells = 2 * 3
    length = cells + 1
    model = DeiT(embed_dims=dims, num_layers=1, num_heads=3, mlp_ratio=2,
                 pos_encoding=dict(type='LearnedPositionEmbedding'),
                 rel_pos_encoding=dict(type='IRPE', rpe_on='qkv', method=method)).train()
    expected = cells * 3 * 16 * 16 * dims + length * dims * 4 * dims + length * 2 * dims * hidden
    expected += 2 * length * length * dims  # q k^T, and weights v
    expected += 3 * length * dims * 50  # buckets
    assert count_macs(model, hw) == expected
    assert model.training and not any(p.is_meta for p in model.parameters())
