"""Multiply-accumulates against sums written out. Those of papers: tests/configs/test_papers.py."""
import pytest
import torch

from mmposenc.backbones import DeiT, count_macs

LEARNED = dict(type='LearnedPositionEmbedding')


def irpe(rpe_on, **options):
    return dict(type='IRPE', rpe_on=rpe_on, **options)


@pytest.mark.parametrize('method', ['product', 'cross'])
def test_every_product_is_counted(method):
    """A DeiT of one block, written out; non-square image, whole patches."""
    dims, hidden, hw = 24, 48, (32, 48)
    cells = 2 * 3
    length = cells + 1
    model = DeiT(embed_dims=dims, num_layers=1, num_heads=3, mlp_ratio=2, pos_encoding=LEARNED,
                 rel_pos_encoding=irpe('qkv', method=method))
    expected = cells * 3 * 16 * 16 * dims + length * dims * 4 * dims + length * 2 * dims * hidden
    expected += 2 * length * length * dims  # q k^T, and weights v
    expected += 3 * length * dims * 50  # buckets
    assert count_macs(model, hw) == expected


def test_peg_adds_its_convolution_and_the_model_is_left_as_it_was():
    plain = DeiT('tiny', pool='gap')
    model = DeiT('tiny', pool='gap', pos_encoding=dict(type='PEG'),
                 rel_pos_encoding=irpe('v')).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    extra = count_macs(model, (224, 160)) - count_macs(plain, (224, 160))
    assert extra == 14 * 10 * 192 * (9 + 12 * 49)
    assert model.training and not any(p.is_meta for p in model.parameters())
    assert 'choose_implementation' not in vars(model.blocks[0].attn.rel_pos_encoding)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
