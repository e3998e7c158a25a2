"""PEG written out on one axis, two and three, and its promises about padding."""
import math

import pytest
import torch
import torch.nn.functional as F
from helpers.tiny_backbones import randomize
from torch import nn

from mmposenc.backbones.layers import MLP
from mmposenc.encodings import PEG

SHAPES = [(4, 6), (1, 7), (5, 1), (3, 3), (7,), (2, 3, 4)]


def written_out(peg, x, shape):
    """y = x + conv(x) of the paper; without padding conv(x). x: (tokens, C)."""
    maps, convolve = x.T.unflatten(1, shape)[None], (F.conv1d, F.conv2d, F.conv3d)[len(shape) - 1]
    for layer in peg.proj:
        if isinstance(layer, nn.BatchNorm2d):
            maps = layer(maps.flatten(2)[..., None]).view(maps.shape)
        elif isinstance(layer, nn.ReLU):
            maps = maps.relu()
        else:
            maps = convolve(maps, layer.weight, layer.bias, padding=layer.padding[0],
                            groups=layer.groups)
    out = maps[0].flatten(1).T
    return x + out if peg.padding == 'zeros' and peg.residual else out


@pytest.mark.parametrize('shape', SHAPES)
@pytest.mark.parametrize('options', [
    dict(), dict(kernel_size=5, bias=False), dict(kernel_size=1), dict(kernel_size=9),
    dict(conv='separable'), dict(conv='dense', num_layers=2), dict(num_layers=3),
    dict(norm_act=True, bias=False), dict(conv='separable', num_layers=2, norm_act=True)], ids=str)
def test_equals_the_written_out(shape, options):
    peg = randomize(PEG(3, dims=len(shape), **options), 0.5).double().eval()
    x = torch.randn(2, math.prod(shape) + 1, 3, dtype=torch.float64)
    out = peg(x, shape, num_prefix_tokens=1)
    torch.testing.assert_close(out[:, :1], x[:, :1], rtol=0, atol=0)
    for image, result in zip(x[:, 1:], out[:, 1:], strict=True):
        torch.testing.assert_close(result, written_out(peg, image, shape))


@pytest.mark.parametrize('relu', [False, True])
@pytest.mark.parametrize('shape', SHAPES[:4])
def test_in_an_mlp_it_is_the_papers_formula(shape, relu):
    """fc2(act(conv(fc1(x)))), and its gradients."""
    convolution = dict(type='ConvMLP', relu=relu)
    mlp = randomize(MLP(3, 5, num_prefix_tokens=1, pos_encodings=[convolution]), 0.5).double()
    x = torch.randn(2, math.prod(shape) + 1, 3, dtype=torch.float64, requires_grad=True)
    hidden = mlp.fc1(x)
    cells = [written_out(mlp.pos_encodings[0], image[1:].relu() if relu else image[1:], shape)
             for image in hidden]
    expected = mlp.fc2(nn.functional.gelu(torch.cat((hidden[:, :1], torch.stack(cells)), 1)))
    torch.testing.assert_close(mlp(x, shape), expected)
    assert torch.autograd.gradcheck(lambda tokens, *weights: mlp(tokens, shape),
                                    (x, *mlp.parameters()))


def test_an_mlp_that_starts_at_zero_is_a_plain_one():
    plain = randomize(MLP(3, 5), 0.5).double()
    mlp = MLP(3, 5, pos_encodings=[dict(type='ConvMLP', zero_init=True)]).double()
    mlp.load_state_dict(plain.state_dict(), strict=False)
    x = torch.randn(2, 12, 3, dtype=torch.float64)
    torch.testing.assert_close(mlp(x, (3, 4)), plain(x), rtol=0, atol=0)
    with pytest.raises(ValueError, match='zero_init=True with relu=True'):
        MLP(3, 5, pos_encodings=[dict(type='ConvMLP', relu=True, zero_init=True)])


@pytest.mark.parametrize('shape', [(6, 7), (7,), (5, 5, 6)])
@pytest.mark.parametrize('options', [dict(), dict(num_layers=2), dict(conv='dense')], ids=str)
def test_without_padding_the_grid_shrinks_and_nothing_is_added(options, shape):
    peg = randomize(PEG(3, dims=len(shape), padding='none', **options), 0.5).double()
    x = torch.randn(1, math.prod(shape), 3, dtype=torch.float64)
    torch.testing.assert_close(peg(x, shape)[0], written_out(peg, x[0], shape))
    assert peg.out_hw_shape(shape) == tuple(side - 2 * peg.num_layers for side in shape)
    mask = torch.zeros(1, *shape, dtype=torch.bool)
    mask[..., -1] = True  # a cell is valid when its whole window is
    valid = ~peg.out_padding_mask(mask)[0]
    assert valid[..., :-1].all() and not valid[..., -1].any()
    short = (*shape[:-1], shape[-1] - 1)
    alone = peg(x.view(1, *shape, 3)[..., :-1, :].flatten(1, -2), short)[0]
    torch.testing.assert_close(peg(x, shape, padding_mask=mask)[0][valid.flatten()], alone)


def test_without_padding_a_small_grid_is_an_error():
    with pytest.raises(ValueError, match=r"hw_shape=\(2, 7\) is too small: padding='none'"):
        PEG(3, padding='none')(torch.zeros(1, 14, 3), (2, 7))


@pytest.mark.parametrize('options', [
    dict(), dict(conv='separable', num_layers=2), dict(norm_act=True, bias=False)], ids=str)
@pytest.mark.parametrize('shape', [(5,), (2, 3, 2)])
def test_valid_tokens_of_sequences_and_videos_do_not_see_padding(options, shape):
    """In training, where statistics are those of valid tokens. (Maps: test_cellwise.py.)"""
    peg, alone = (randomize(PEG(4, dims=len(shape), **options), 0.5).double() for _ in range(2))
    image, full = torch.randn(2, *shape, 4, dtype=torch.float64), [side + 2 for side in shape]
    x, mask = torch.full((2, *full, 4), torch.nan).double(), torch.ones(2, *full).bool()
    corner = (slice(None), *map(slice, shape))
    x[corner], mask[corner] = image, False
    out = peg(x.flatten(1, -2), full, padding_mask=mask).view_as(x)
    torch.testing.assert_close(out[corner], alone(image.flatten(1, -2), shape).view_as(image))
    torch.testing.assert_close(out[mask], x[mask], equal_nan=True, rtol=0, atol=0)
    torch.testing.assert_close(peg.state_dict(), alone.state_dict())


def test_frozen_keeps_its_random_weights():
    peg = PEG(8, frozen=True)
    assert not any(p.requires_grad for p in peg.parameters())
    assert peg.proj[0].weight.std() > 0.1


def test_half_precision_keeps_small_weights():
    """Folding the residual into a bfloat16 kernel would round weights of 1e-3 away."""
    peg = PEG(8)
    with torch.no_grad():
        peg.proj[0].weight.fill_(1e-3)
    x = torch.ones(1, 25, 8)
    expected = peg(x, (5, 5)) - x
    with torch.autocast('cpu', torch.bfloat16):
        out = peg(x, (5, 5)).float() - x
    assert expected.abs().min() > 3e-3
    torch.testing.assert_close(out, expected, rtol=0.5, atol=4e-3)
    torch.testing.assert_close(peg.bfloat16()(x.bfloat16(), (5, 5)).float() - x, expected,
                               rtol=0.5, atol=4e-3)
