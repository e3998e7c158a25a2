"""Every backbone on another device, with every kind of encoding, padded or not."""
import pytest
import torch
from helpers import tiny_backbones
from helpers.on_device import DEVICE, check

from mmposenc.backbones import CPResNet

ENCODINGS = {
    'none': {}, **{name: dict(pos_encoding=dict(type=f'mmposenc.{name.split()[0]}', **options))
                   for name, options in {
        'PEG': {}, 'PEG with BatchNorm': dict(norm_act=True), 'LearnedPositionEmbedding': {},
        'SinCosPositionEncoding': dict(normalize=True), 'ContextPool': {}}.items()},
    **{name: dict(rel_pos_encoding=dict(type=f'mmposenc.{name}', **options))
       for name, options in {
        'IRPE': dict(rpe_on='qkv'), 'SASARPE': {}, 'LogSpacedCPB': {}, 'RotaryEmbedding': {},
        'GTA': {}, 'LePE': {}}.items()}}


@pytest.mark.usefixtures('accelerated')
@pytest.mark.parametrize('large', [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize('encoding', ENCODINGS)
@pytest.mark.parametrize('name', tiny_backbones.BUILD)
def test_transformers(name, encoding, large):
    """How far images reach is known to the host, so that it does not wait for the mask."""
    torch.manual_seed(0)
    # Two devices draw other numbers, and would drop other paths.
    options = {} if DEVICE == 'meta' else dict(drop_path_rate=0.0)
    for sizes in (None, [(32, 48), (21, 30)]):
        model = tiny_backbones.randomized(tiny_backbones.BUILD[name](
            mask_padding=sizes is not None, **options, **ENCODINGS[encoding])).train()
        check(model, lambda m, x, sizes=sizes: m(x, sizes), [tiny_backbones.images()])


def test_context_pool_resnet():
    torch.manual_seed(0)
    check(CPResNet(20), lambda m, x: m(x), [torch.randn(2, 3, 32, 32)])
