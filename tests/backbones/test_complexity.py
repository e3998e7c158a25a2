"""Multiply-accumulates against the papers' tables and against sums written out."""
import pytest
import torch
from torch import nn

from mmposenc.backbones import PVT, DeiT, Swin, count_macs

LEARNED = dict(type='LearnedPositionEmbedding')


def irpe(rpe_on, **options):
    return dict(type='IRPE', rpe_on=rpe_on, **options)


def classifier(backbone, dims):
    """With the 1000-way head that the papers count."""
    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone, self.head = backbone, nn.Linear(dims, 1000)

        def forward(self, x):
            return self.head(self.backbone(x)[0])
    return Classifier()


@pytest.mark.parametrize('rpe_on, published', [
    *(pytest.param(*each, marks=pytest.mark.slow) for each in ((None, 4613e6), ('k', 4659e6))),
    ('qkv', 4885e6)])
def test_deit_small_with_irpe_as_published(rpe_on, published):
    with torch.device('meta'):
        encoding = None if rpe_on is None else irpe(rpe_on)
        model = classifier(DeiT('small', pos_encoding=LEARNED, rel_pos_encoding=encoding), 384)
    macs = count_macs(model, (224, 224), values_as_released=True)
    assert macs == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize('method, tables, buckets', [('product', 1, 50), ('cross', 1, 50)])
def test_every_product_is_counted(method, tables, buckets):
    """A DeiT of one block, written out; non-square image, whole patches."""
    dims, hidden, hw = 24, 48, (32, 48)
    cells = 2 * 3
    length = cells + 1
    model = DeiT(embed_dims=dims, num_layers=1, num_heads=3, mlp_ratio=2, pos_encoding=LEARNED,
                 rel_pos_encoding=irpe('qkv', method=method))
    expected = cells * 3 * 16 * 16 * dims + length * dims * 4 * dims + length * 2 * dims * hidden
    expected += 2 * length * length * dims  # q k^T, and weights v
    expected += 3 * tables * length * dims * buckets
    assert count_macs(model, hw) == expected


@pytest.mark.slow
@pytest.mark.parametrize('build, dims, published', [
    (lambda: DeiT('tiny', pos_encoding=LEARNED), 192, 1.3e9),
    (lambda: DeiT('base', pos_encoding=LEARNED), 768, 17.6e9),
    (lambda: Swin('tiny', pool='gap'), 768, 4.5e9),
    (lambda: Swin('base', pool='gap'), 1024, 15.4e9),
    (lambda: PVT('tiny', pool='cls', pos_encoding=LEARNED), 512, 1.9e9),
    (lambda: PVT('small', pool='cls', pos_encoding=LEARNED), 512, 3.8e9)],
    ids=['deit-t', 'deit-b', 'swin-t', 'swin-b', 'pvt-t', 'pvt-s'])
def test_published_numbers_to_their_two_digits(build, dims, published):
    with torch.device('meta'):
        model = classifier(build(), dims)
    assert count_macs(model, (224, 224)) == pytest.approx(published, rel=0.04)


def test_peg_adds_its_convolution_and_the_model_is_left_as_it_was():
    plain = DeiT('tiny', pool='gap')
    model = DeiT('tiny', pool='gap', pos_encoding=dict(type='PEG'),
                 rel_pos_encoding=irpe('v')).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    extra = count_macs(model, (224, 160)) - count_macs(plain, (224, 160))
    assert extra == 14 * 10 * 192 * (9 + 12 * 49)
    assert model.training and not any(p.is_meta for p in model.parameters())
    assert 'choose_form' not in vars(model.blocks[0].attn.rel_pos_encoding)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
