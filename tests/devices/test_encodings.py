"""Every encoding, and every backbone with every kind of encoding, padded or not, on another device:
no tensor stays on the CPU, and the host does not wait."""
import examples
import pytest
import torch
from helpers import tiny_backbones
from helpers.on_device import DEVICE, check
from helpers.relative_checks import attend

from mmposenc.backbones import CPResNet
from mmposenc.functional import Grid

#: Query grid, key grid, prefix tokens.
GRIDS = {'prefix': ((4, 5), None, 1), 'reduced': ((4, 6), Grid(2, 3, 2.0, 2.0), 0)}


SLOW = pytest.mark.slow


@pytest.mark.usefixtures('accelerated')
@pytest.mark.parametrize('grid, large', [
    ('prefix', True), ('reduced', False), pytest.param('prefix', False, marks=SLOW),
    pytest.param('reduced', True, marks=SLOW)])
@pytest.mark.parametrize('name', examples.RELATIVE)
def test_relative_encodings(name, grid, large):
    """Also of padded images, where each token has its place whatever the image's size."""
    query, key, prefix = GRIDS[grid]
    encoding = examples.relative(name, query, head_dims=16, num_prefix_tokens=prefix)
    lengths = (prefix + query[0] * query[1], prefix + (key or Grid(*query)).num_cells)
    torch.manual_seed(0)
    qkv = [torch.randn(2, 2, length, 16) for length in (*lengths, lengths[1])]
    hidden = torch.zeros(2, lengths[1], dtype=torch.bool)
    hidden[0, -2:] = True
    for inputs in (qkv, [*qkv, hidden])[:1 + encoding.cellwise]:
        check(encoding, lambda m, q, k, v, hidden=None: attend(
            q, k, v, m, query, key, key_padding_mask=hidden)[0], inputs)


@pytest.mark.parametrize('name', examples.TOKEN_OPTIONS)
def test_token_encodings(name):
    encoding = examples.token(name, (4, 6))
    torch.manual_seed(0)
    padding = torch.zeros(2, 4, 6, dtype=torch.bool)
    padding[0, 3:] = True
    for inputs in ([torch.randn(2, 24, 8)], [torch.randn(2, 24, 8), padding]):
        check(encoding, lambda m, x, mask=None: m(x, (4, 6), padding_mask=mask), inputs)


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
    # Two devices draw other numbers, and would drop other paths.
    options = {} if DEVICE == 'meta' else dict(drop_path_rate=0.0)
    for sizes in (None, [(32, 48), (21, 30)]):
        model = tiny_backbones.randomized(tiny_backbones.BUILD[name](
            mask_padding=sizes is not None, **options, **ENCODINGS[encoding])).train()
        check(model, lambda m, x, sizes=sizes: m(x, sizes), [tiny_backbones.images()])


def test_context_pool_resnet():
    check(CPResNet(20), lambda m, x: m(x), [torch.randn(2, 3, 32, 32)])
