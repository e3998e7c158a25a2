"""Sequences and videos: PEG, rotary positions and attention on one axis and on three."""
import cmath
import itertools
import math

import pytest
import torch
from torch import nn

from mmposenc.attention import MultiheadAttention, attend
from mmposenc.encodings import IRPE, PEG, CombinedRPE, RotaryEmbedding, ShawRPE
from mmposenc.functional import Grid

SHAPES = {1: (5,), 2: (2, 4), 3: (3, 2, 4)}
EVERY = pytest.mark.parametrize('dims', SHAPES)


def places(shape):
    return list(itertools.product(*map(range, shape)))


def randomize(module):
    torch.manual_seed(1)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module.double()


def convolved(layer, x, shape):
    """Sums over windows, an entry at a time; zero outside. x: {place: (C,)}."""
    kernel, found = layer.kernel_size[0], {}
    lost = 0 if layer.padding[0] or kernel == 1 else kernel - 1
    for place in places([side - lost for side in shape]):
        value = torch.zeros(layer.out_channels, dtype=torch.float64)
        for offset in places([kernel] * len(shape)):
            other = tuple(p + o - layer.padding[0] for p, o in zip(place, offset, strict=True))
            if other in x:
                weight = layer.weight[(slice(None), slice(None), *offset)]
                value += weight[:, 0] * x[other] if layer.groups > 1 else weight @ x[other]
        found[place] = value if layer.bias is None else value + layer.bias
    return found


@EVERY
@pytest.mark.parametrize('options', [
    dict(), dict(kernel_size=5, bias=False), dict(conv='separable'),
    dict(conv='dense', num_layers=2), dict(conv='dense'), dict(norm_act=True, num_layers=2),
    dict(padding='none', kernel_size=1), dict(padding='none', kernel_size=2 + 1)], ids=str)
def test_peg_equals_the_loop(dims, options):
    shape = tuple(side + 2 for side in SHAPES[dims])
    peg = randomize(PEG(3, dims=dims, **options)).eval()
    x = torch.randn(2, math.prod(shape) + 1, 3, dtype=torch.float64)
    out = peg(x, shape, num_prefix_tokens=1)
    torch.testing.assert_close(out[:, :1], x[:, :1])
    for image, result in zip(x[:, 1:], out[:, 1:], strict=True):
        cells = dict(zip(places(shape), image, strict=True))
        for layer in peg.proj:
            if isinstance(layer, nn.BatchNorm2d):
                joined = torch.stack(list(cells.values()))[:, :, None, None]
                cells = dict(zip(cells, layer(joined)[:, :, 0, 0], strict=True))
            elif isinstance(layer, nn.ReLU):
                cells = {place: cell.clamp(min=0) for place, cell in cells.items()}
            else:
                cells = convolved(layer, cells, shape)
        expected = torch.stack(list(cells.values()))
        if peg.padding == 'zeros':
            expected = expected + image
        assert peg.out_hw_shape(shape) == tuple(1 + max(each) for each in zip(*cells, strict=True))
        torch.testing.assert_close(result, expected)


def padded(cells, shape, full, value):
    """Tokens of a smaller grid in the corner of a larger one, and its mask."""
    out = torch.full((*full, cells.shape[-1]), value, dtype=cells.dtype)
    mask = torch.ones(full, dtype=torch.bool)
    corner = tuple(slice(side) for side in shape)
    out[corner], mask[corner] = cells.view(*shape, -1), False
    return out.flatten(0, -2), mask


@EVERY
@pytest.mark.parametrize('options', [
    dict(num_layers=2), dict(norm_act=True, num_layers=2), dict(padding='none')], ids=str)
@pytest.mark.parametrize('training', [False, True])
def test_peg_with_padding_gives_what_the_grid_gives_alone(dims, options, training):
    shape = tuple(side + 1 for side in SHAPES[dims])
    full = tuple(side + 1 for side in shape)
    peg = randomize(PEG(3, dims=dims, **options)).train(training)
    x = torch.randn(math.prod(shape), 3, dtype=torch.float64)
    for value in (0.0, 7.0):
        tokens, mask = padded(x, shape, full, value)
        out = peg(tokens[None], full, padding_mask=mask[None])[0]
        alone = peg(x[None], shape)[0]
        corner = tuple(slice(side) for side in peg.out_hw_shape(shape))
        got = out.view(*peg.out_hw_shape(full), 3)[corner].flatten(0, -2)
        torch.testing.assert_close(got, alone)
        valid = peg.out_padding_mask(mask[None])[0]
        assert not valid[corner].any() and int((~valid).sum()) == len(alone)
        if peg.padding == 'zeros':
            torch.testing.assert_close(out[mask.flatten()], tokens[mask.flatten()])


@EVERY
def test_peg_starts_at_zero_and_its_gradients_are_right(dims):
    shape = SHAPES[dims]
    x = torch.randn(1, math.prod(shape), 2, dtype=torch.float64, requires_grad=True)
    peg = PEG(2, dims=dims).double()
    peg.start_at_zero()
    assert torch.equal(peg(x, shape), x)
    peg, mask = randomize(PEG(2, dims=dims, norm_act=True)), torch.zeros(1, *shape,
                                                                        dtype=torch.bool)
    mask[..., -1] = True
    torch.autograd.gradcheck(lambda tokens: peg(tokens, shape, padding_mask=mask), x)


def turned(x, shape, stride, theta, planes='adjacent', axes='xy'):
    """Every plane of a head by exp(i angle), an entry at a time."""
    dims, out = len(shape), x.clone()
    count = x.shape[-1] // 2 // dims
    order = {1: [0], 2: [1, 0], 3: [0, 2, 1]}[dims]
    if axes == 'yx':
        order = {1: [0], 2: [0, 1], 3: [0, 1, 2]}[dims]
    for token, place in enumerate(places(shape)):
        for plane in range(count * dims):
            axis, number = order[plane // count], plane % count
            angle = ((place[axis] + 0.5) * stride[axis] - 0.5) * theta ** (-number / count)
            pair = ((plane, x.shape[-1] // 2 + plane) if planes == 'halves'
                    else (2 * plane, 2 * plane + 1))
            for head in range(x.shape[1]):
                value = complex(*x[0, head, token, list(pair)]) * cmath.exp(1j * angle)
                out[0, head, token, pair[0]], out[0, head, token, pair[1]] = value.real, value.imag
    return out


@EVERY
@pytest.mark.parametrize('options', [dict(), dict(planes='halves'), dict(axes='yx', theta=50.0)],
                         ids=str)
@pytest.mark.parametrize('head_dims', [12, 16])
def test_rotary_equals_the_loop_on_keys_of_another_grid_too(dims, options, head_dims):
    """16 channels are two planes for each of three axes, and two that stay."""
    shape, keys = SHAPES[dims], tuple(-(-side // 2) for side in SHAPES[dims])
    encoding = RotaryEmbedding(head_dims, 2, dims=dims, **options)
    theta = options.get('theta', 100.0 if dims == 2 else 10000.0)
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 2, math.prod(each), head_dims, generator=generator,
                        dtype=torch.float64) for each in (shape, keys))
    got_q, got_k = encoding.rotate(q, k, shape, keys)
    names = {name: value for name, value in options.items() if name != 'theta'}
    torch.testing.assert_close(got_q, turned(q, shape, (1.0,) * dims, theta, **names))
    strides = tuple(a / b for a, b in zip(shape, keys, strict=True))
    torch.testing.assert_close(got_k, turned(k, keys, strides, theta, **names))
    q.requires_grad_()
    torch.autograd.gradcheck(lambda x: encoding.rotate(x, k, shape, keys)[0], q)


@EVERY
@pytest.mark.parametrize('form', ['auto', 'definition', 'pieces', 'fused'])
def test_attention_depends_on_offsets_alone_and_not_on_padding(dims, form):
    """Keys anywhere in a video have the weights that keys in its middle have."""
    shape, full = SHAPES[dims], tuple(side + 1 for side in SHAPES[dims])
    attention = randomize(MultiheadAttention(
        24, 2, rel_pos_encoding=dict(type='mmposenc.RotaryEmbedding', dims=dims),
        num_prefix_tokens=1, form=form))
    x = torch.randn(math.prod(shape) + 1, 24, dtype=torch.float64)
    alone = attention(x[None], shape)[0]
    tokens, mask = padded(x[1:], shape, full, 5.0)
    out = attention(torch.cat((x[:1], tokens))[None], full,
                    torch.cat((mask.new_zeros(1), mask.flatten()))[None])[0]
    torch.testing.assert_close(out[0], alone[0])
    torch.testing.assert_close(out[1:][~mask.flatten()], alone[1:])


def test_a_sequence_is_a_grid_of_one_row_for_every_relative_encoding():
    """Shaw's, by a loop over pairs of places."""
    encoding = randomize(ShawRPE(4, 2, max_offset=3))
    q, k, v = (torch.randn(1, 2, 6, 4, dtype=torch.float64) for _ in range(3))
    out, weights = attend(q, k, v, encoding, (6,), need_weights=True)
    again, _ = attend(q, k, v, encoding, (1, 6))
    torch.testing.assert_close(out, again)
    first = weights.log()[0, 0, 2] - weights.log()[0, 0, 2, 0]
    bias = encoding.logits(q * 0.5, k, (1, 6))
    logits = (q * 0.5 @ k.transpose(-2, -1) + bias)[0, 0, 2]
    torch.testing.assert_close(first, logits - logits[0])


def test_key_grids_of_videos_cover_the_same_area_and_time():
    """Halves of frames, rows and columns: the centre of what a key stands for."""
    encoding = RotaryEmbedding(12, 1, dims=3)
    k = torch.randn(1, 1, 4, 12)
    plain = encoding.rotate(torch.zeros(1, 1, 32, 12), k, (4, 2, 4), (2, 1, 2))[1]
    grid = Grid(1, 2, 2.0, 2.0, 2, 2.0)
    placed = encoding.rotate(torch.zeros(1, 1, 32, 12), k, (4, 2, 4), grid)[1]
    torch.testing.assert_close(plain, placed)


BAD = {
    'dims=4 must be 1, 2 or 3': lambda: PEG(4, dims=4),
    'dims=0 must be 1, 2 or 3': lambda: RotaryEmbedding(8, 2, dims=0),
    'head_dims=4 must be even and at least 2 * dims = 6': lambda: RotaryEmbedding(4, 2, dims=3),
    'head_dims=7 must be even': lambda: RotaryEmbedding(7, 2, dims=1),
    "mode='mixed' with dims=1": lambda: RotaryEmbedding(8, 2, dims=1, mode='mixed'),
    'shift=0.5 with dims=3': lambda: RotaryEmbedding(12, 2, dims=3, shift=0.5),
    "hw_shape=(2, 3) must be (length,)": lambda: PEG(4, dims=1)(torch.zeros(1, 6, 4), (2, 3)),
    'hw_shape=(6,) must be (height, width)': lambda: PEG(4)(torch.zeros(1, 6, 4), (6,)),
    'hw_shape=(2, 3) must be (frames, height, width)': lambda: PEG(4, dims=3)(
        torch.zeros(1, 6, 4), (2, 3)),
    'need 0 + 2 * 2 * 2 = 8': lambda: PEG(4, dims=3)(torch.zeros(1, 6, 4), (2, 2, 2)),
    'hw_shape=(2, 0) must be at least (1, 1)': lambda: PEG(4)(torch.zeros(1, 6, 4), (2, 0)),
    'IRPE has no axis of time': lambda: attend(*torch.zeros(3, 1, 2, 8, 4), IRPE(4, 2), (2, 2, 2)),
    'CombinedRPE has no axis of time': lambda: attend(
        *torch.zeros(3, 1, 2, 8, 12), CombinedRPE([RotaryEmbedding(12, 2, dims=3), dict(
            type='IRPE', head_dims=12, num_heads=2)]), (2, 2, 2)),
    'q_grid=(2, 3) has more axes than dims=1': lambda: attend(
        *torch.zeros(3, 1, 2, 6, 4), RotaryEmbedding(4, 2, dims=1), (2, 3)),
    'q_grid=(2, 2, 2) has frames': lambda: IRPE(4, 2).logits(
        *torch.zeros(2, 1, 2, 8, 4), Grid(2, 2, frames=2)),
    '(length,), (height, width) or (frames, height, width)': lambda: MultiheadAttention(8, 2)(
        torch.zeros(1, 8, 8), (2, 2, 2, 1)),
}


@pytest.mark.parametrize('message', BAD)
def test_what_does_not_fit_is_named(message):
    with pytest.raises(ValueError) as error:
        BAD[message]()
    assert message in str(error.value)
