"""The pyramids for backbones of one stride against their steps written out."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from helpers.tiny_backbones import randomize

from mmposenc.backbones import ViT
from mmposenc.detr import MultiScaleProjector
from mmposenc.functional.extents import extents_to_mask
from mmposenc.openmmlab.necks import STA, ConcatPyramid, SimpleFeaturePyramid


def drawn(cls, *args, **kwargs):
    neck = cls(*args, **kwargs).double()
    randomize(neck, 1.0)
    return neck


def maps(*channels, hw=(3, 5)):
    # Of blocks whose values differ in size and mean, as those of a transformer do.
    return [torch.randn(2, c, *hw, dtype=torch.float64) * 10 ** i + i
            for i, c in enumerate(channels)]


def by_layer(x, module):
    """Norms of cells."""
    return F.layer_norm(x.movedim(1, -1), x.shape[1:2], module.weight, module.bias,
                        module.eps).movedim(-1, 1)


def by_batch(x, module):
    """In training: statistics of a channel over images and cells."""
    return F.batch_norm(x, None, None, module.weight, module.bias, True, eps=module.eps)


def by_hand(level, scale, x):
    modules = list(level)
    if scale == 0.5:
        x = F.max_pool2d(x, 2)
    if scale == 4:
        x = F.conv_transpose2d(x, modules[0].weight, modules[0].bias, 2)
        x = F.gelu(by_layer(x, modules[1]))
    if scale >= 2:
        x = F.conv_transpose2d(x, modules[-5].weight, modules[-5].bias, 2)
    one, norm_one, three, norm_three = modules[-4:]
    x = by_layer(F.conv2d(x, one.weight), norm_one)
    return by_layer(F.conv2d(x, three.weight, padding=1), norm_three)


@pytest.mark.parametrize('hw', [(4, 6), (5, 3), (2, 2)])
def test_levels_are_the_papers(hw):
    neck = drawn(SimpleFeaturePyramid, 8, 12, num_outs=6)
    x = torch.randn(2, 8, *hw, dtype=torch.float64)
    outs = neck((x,))
    for level, scale, out in zip(neck.levels, (4, 2, 1, 0.5), outs, strict=False):
        torch.testing.assert_close(out, by_hand(level, scale, x), rtol=1e-10, atol=1e-10)
    for before, out in zip(outs[3:], outs[4:], strict=False):
        assert torch.equal(out, before[:, :, ::2, ::2])


@pytest.mark.parametrize('kind, by_hand', [
    ('layer', by_layer), ('batch', by_batch), (None, lambda x, _: x)])
def test_every_map_has_a_norm_of_its_own(kind, by_hand):
    neck, inputs = drawn(ConcatPyramid, (8, 4), norm=kind), maps(8, 4)
    out, = neck(inputs)
    expected = torch.cat([by_hand(x, module)
                          for x, module in zip(inputs, neck.norms, strict=True)], 1)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)


def test_levels_are_the_simple_pyramid_of_a_projection():
    neck = drawn(ConcatPyramid, (8, 4), 12, scales=(2, 1, 0.5), num_outs=4)
    inputs = maps(8, 4, hw=(4, 6))
    outs = neck(inputs)
    x = torch.cat([by_layer(x, module)
                   for x, module in zip(inputs, neck.norms, strict=True)], 1)
    x = (torch.einsum('bchw,oc->bohw', x, neck.project.weight[:, :, 0, 0])
         + neck.project.bias[:, None, None])
    pyramid = SimpleFeaturePyramid(12, 12, scales=(2, 1, 0.5), num_outs=4).double()
    pyramid.load_state_dict(neck.pyramid.state_dict())
    torch.testing.assert_close(outs, pyramid((x,)), rtol=1e-10, atol=1e-10)
    assert [tuple(out.shape[2:]) for out in outs] == [(8, 12), (4, 6), (2, 3), (1, 2)]


def conv_norm(x, layer, stride, train):
    x = F.conv2d(x, layer.conv.weight, stride=stride, padding=layer.conv.padding)
    norm = layer.norm
    return F.batch_norm(x, norm.running_mean.clone(), norm.running_var.clone(), norm.weight,
                        norm.bias, train, eps=norm.eps)


def sta_by_hand(neck, image, maps, patch, train):
    """DEIMv2's release; maps are read at the middles of cells, at a distance of pixels."""
    x = F.max_pool2d(F.gelu(conv_norm(image, neck.stem, 2, train)), 3, 2, 1)
    outs = []
    for level, stride in enumerate((8, 16, 32)):
        x = conv_norm(F.gelu(x) if level else x, neck.details[level], 2, train)
        rows, cols = (2 * (torch.arange(cells).double() + 0.5) * stride / patch / source - 1
                      for cells, source in zip(x.shape[2:], maps[0].shape[2:], strict=True))
        grid = torch.stack(torch.meshgrid(rows, cols, indexing='ij')[::-1], -1)
        semantic = F.grid_sample(maps[level % len(maps)], grid.expand(len(x), -1, -1, -1),
                                 padding_mode='border', align_corners=False)
        if all(side % 32 == 0 for side in image.shape[2:]) and patch == 16:
            torch.testing.assert_close(semantic, F.interpolate(
                maps[level % len(maps)], x.shape[2:], mode='bilinear'), rtol=0, atol=1e-12)
        outs.append(conv_norm(torch.cat((semantic, x), 1), neck.convs[level], 1, train))
    return outs


def image_and_maps(hw, patch, count=3, batch=2):
    cells = [-(-side // patch) for side in hw]
    return [torch.randn(batch, channels, *size, dtype=torch.float64, requires_grad=True)
            for channels, size in [(3, hw), *[(5, cells)] * count]]


@pytest.mark.parametrize('hw, patch, count', [
    ((64, 96), 16, 3), ((32, 64), 16, 1), ((77, 50), 16, 3), ((70, 43), 14, 1)])
@pytest.mark.parametrize('train', [True, False])
def test_sta_is_the_releases_at_any_size(hw, patch, count, train):
    neck = drawn(STA, 5, 6, base_channels=4, patch_size=patch).train(train)
    inputs = image_and_maps(hw, patch, count)
    results = neck(inputs), sta_by_hand(neck, inputs[0], inputs[1:], patch, train)
    assert [tuple(each.shape[2:]) for each in results[0]] == [
        tuple(-(-side // stride) for side in hw) for stride in (8, 16, 32)]
    grads = [torch.autograd.grad(sum(out.square().sum() for out in outs),
                                 [*inputs, *neck.parameters()]) for outs in results]
    torch.testing.assert_close(results[0], tuple(results[1]), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(*grads, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize('hw, patch', [((45, 61), 16), ((33, 40), 14)])
@pytest.mark.parametrize('train', [True, False])
def test_sta_of_an_image_does_not_depend_on_padding(hw, patch, train):
    full, (image, *maps) = (96, 70), image_and_maps(hw, patch, batch=1)
    neck = drawn(STA, 5, 6, base_channels=4, patch_size=patch).train(train)
    padded = [F.pad(each, (0, size[1] - each.shape[3], 0, size[0] - each.shape[2]), value=7.0)
              for each, size in [(image, full), *((each, [-(-side // patch) for side in full])
                                                  for each in maps)]]
    mask = extents_to_mask([hw], full, torch.device('cpu'))
    results, grads = [], []
    for args in (((image, *maps),), (padded, mask)):
        outs = neck(*args)
        results.append([out[..., :-(-hw[0] // stride), :-(-hw[1] // stride)]
                        for out, stride in zip(outs, (8, 16, 32), strict=True)])
        total = sum(out.square().sum() for out in outs)
        grads.append(torch.autograd.grad(total, [image, *maps, *neck.parameters()]))
    assert total.isclose(sum(out.square().sum() for out in results[0]), rtol=1e-9)
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(*grads, rtol=1e-7, atol=1e-7)


def test_a_vit_hands_on_its_images():
    backbone = ViT(patch_size=14, embed_dims=5, num_layers=2, num_heads=1, out_indices=(0, 1),
                   with_image=True, mask_padding=True).double()
    images = torch.ones(2, 3, 64, 50, dtype=torch.float64)
    image, *maps = backbone(images, [(40, 50), (60, 41)])
    assert image.shape == images.shape and backbone.strides == (1, 14, 14)
    assert image[0].sum() == 3 * 40 * 50 and image[1, :, :60, :41].sum() == image[1].sum()
    drawn(STA, 5, 6, patch_size=14)((image, maps[1]))


@pytest.mark.parametrize('neck, inputs, message', [
    *((STA(5, 6), image_and_maps((64, 64), patch, count), 'images and 1 or 3 maps of their patches '
       'of 16 pixels.*with_image=True') for patch, count in ((14, 3), (16, 2), (16, 0))),
    *((neck((8, 8)), inputs, r'must be maps of the same size with in_channels=\(8')
      for neck in (ConcatPyramid, MultiScaleProjector)
      for inputs in (maps(8), maps(8, 4), maps(8, 8, 8), maps(8) + maps(8, hw=(3, 4)))),
    (SimpleFeaturePyramid(8), maps(8, 8), 'inputs holds 2 maps.*one number in out_indices')])
def test_maps_that_do_not_fit(neck, inputs, message):
    with pytest.raises(ValueError, match=message):
        neck.double()(inputs)
