"""ViTDet's pyramid against loops over its cells."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip('mmengine')
from mmposenc.openmmlab.necks import SimpleFeaturePyramid  # noqa: E402


def norm(x, module):
    """LayerNorm of one cell (C,)."""
    centred = x - x.mean()
    return centred / (centred.square().mean() + module.eps).sqrt() * module.weight + module.bias


def cells(x, function):
    """A function of every cell's channels of (C, H, W)."""
    return torch.stack([torch.stack([function(x[:, i, j]) for j in range(x.shape[2])], 1)
                        for i in range(x.shape[1])], 1)


def finer(x, deconv):
    """A transposed 2x2 convolution of stride 2: each cell becomes four."""
    out = torch.zeros(deconv.out_channels, 2 * x.shape[1], 2 * x.shape[2], dtype=x.dtype)
    for i in range(x.shape[1]):
        for j in range(x.shape[2]):
            block = torch.einsum('c,cokl->okl', x[:, i, j], deconv.weight)
            out[:, 2 * i:2 * i + 2, 2 * j:2 * j + 2] = block + deconv.bias[:, None, None]
    return out


def convolution(x, weight):
    """3x3 with zeros around."""
    padded, out = F.pad(x, (1, 1, 1, 1)), torch.zeros(len(weight), *x.shape[1:], dtype=x.dtype)
    for i in range(x.shape[1]):
        for j in range(x.shape[2]):
            out[:, i, j] = torch.einsum('cij,ocij->o', padded[:, i:i + 3, j:j + 3], weight)
    return out


def by_hand(level, scale, x):
    modules = list(level)
    if scale == 0.5:
        x = torch.stack([torch.stack([
            x[:, 2 * i:2 * i + 2, 2 * j:2 * j + 2].amax((1, 2)) for j in range(x.shape[2] // 2)], 1)
            for i in range(x.shape[1] // 2)], 1)
    if scale == 4:
        x = cells(finer(x, modules[0]), lambda cell: F.gelu(norm(cell, modules[1])))
    if scale >= 2:
        x = finer(x, modules[-5])
    one, norm_one, three, norm_three = modules[-4:]
    x = cells(x, lambda cell: norm(one.weight[:, :, 0, 0] @ cell, norm_one))
    return cells(convolution(x, three.weight), lambda cell: norm(cell, norm_three))


@pytest.mark.parametrize('hw', [(4, 6), (5, 3), (2, 2)])
def test_levels_are_the_papers(hw):
    torch.manual_seed(0)
    neck = SimpleFeaturePyramid(8, 12, num_outs=6).double()
    for parameter in neck.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(2, 8, *hw, dtype=torch.float64)
    outs = neck((x,))
    for level, scale, out in zip(neck.levels, (4, 2, 1, 0.5), outs, strict=False):
        for image in range(2):
            torch.testing.assert_close(out[image], by_hand(level, scale, x[image]),
                                       rtol=1e-10, atol=1e-10)
    for before, out in zip(outs[3:], outs[4:], strict=False):
        assert torch.equal(out, before[:, :, ::2, ::2])


def test_every_parameter_gets_a_gradient():
    torch.manual_seed(0)
    neck = SimpleFeaturePyramid(8, 12, scales=(2, 1, 0.5), num_outs=5)
    outs = neck((torch.randn(1, 8, 6, 4),))
    assert [tuple(out.shape[2:]) for out in outs] == [(12, 8), (6, 4), (3, 2), (2, 1), (1, 1)]
    sum(out.square().sum() for out in outs).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in neck.parameters())


@pytest.mark.parametrize('arguments, message', [
    (dict(scales=(1, 2)), r'scales=\(1, 2\) must be some of \(4.0, 2.0, 1.0, 0.5\), from fine'),
    (dict(scales=(3,)), r'scales=\(3,\) must be some of'),
    (dict(scales=()), r'scales=\(\) must be some of'),
    (dict(num_outs=3), 'num_outs=3 must be at least the 4 levels'),
    (dict(in_channels=6), 'in_channels=6 must be a multiple of 4')])
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        SimpleFeaturePyramid(**{'in_channels': 8, **arguments})


def test_one_map_is_required():
    with pytest.raises(ValueError, match='inputs holds 2 maps.*one number in out_indices'):
        SimpleFeaturePyramid(8)((torch.zeros(1, 8, 4, 4),) * 2)
