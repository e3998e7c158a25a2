"""Files of another patch size or of other channels (FlexiViT's resize), and oblong patches."""
# Before timm: it provides torchvision's operators where they are not compiled.
import mmposenc  # noqa: F401

# isort: split
import logging

import pytest
import torch
import torch.nn.functional as F
from helpers.tiny_backbones import randomize
from timm.layers import patch_embed, resample_patch_embed
from timm.models import adapt_input_conv

from mmposenc.backbones import PVT, Swin, ViT, fitting, load_pretrained
from mmposenc.backbones.archs import needed_options
from mmposenc.checkpoint import convert_back
from mmposenc.functional.position_tables import resize_patch_kernel

VIT = dict(embed_dims=16, num_layers=2, num_heads=2, mlp_ratio=2)
TABLE = dict(pos_encoding=dict(type='LearnedPositionEmbedding'))
KEY = 'patch_embed.projection.weight'


def upsampled(images, patch, sides):
    """Images whose patches are each resized, so that none sees its neighbours."""
    patches = F.unfold(images, patch, stride=patch).mT.unflatten(2, (-1, patch, patch))
    larger = F.interpolate(patches.flatten(0, 1), sides, mode='bicubic', antialias=True)
    grid = [side // patch for side in images.shape[-2:]]
    return F.fold(larger.view(*patches.shape[:2], -1).mT,
                  [side * cells for side, cells in zip(sides, grid, strict=True)], sides,
                  stride=sides)


@pytest.mark.parametrize('source, to_hw', [
    (14, (16, 16)), (16, (8, 8)), (16, (32, 32)), (16, (12, 20)), (32, (14, 14))], ids=str)
def test_kernels_are_those_of_timm(source, to_hw, monkeypatch):
    kernel = torch.randn(5, 3, source, source, dtype=torch.float64)
    own = resize_patch_kernel(kernel, to_hw)
    monkeypatch.setattr(patch_embed, 'DTYPE_INTERMEDIATE', torch.float64)  # else it is float32
    torch.testing.assert_close(own, resample_patch_embed(kernel, list(to_hw)), rtol=0, atol=1e-12)
    assert resize_patch_kernel(kernel, (source, source)) is kernel


@pytest.mark.parametrize('sides', [(8, 8), (16, 16), (7, 10)], ids=str)
@pytest.mark.parametrize('options', [TABLE, dict(rel_pos_encoding=dict(type='RotaryEmbedding'))],
                         ids=['table', 'rotary'])
def test_a_resized_image_has_the_tokens_of_the_image(options, sides):
    """The defining property (FlexiViT, Sec. 3.4), of the whole model, at an oblong size."""
    options = dict(VIT, **options, pool=None, out_indices=(0, 1), class_token=True)
    source = randomize(ViT(**options, patch_size=7, img_size=(28, 42))).double().eval()
    model = ViT(**options, patch_size=sides, img_size=(4 * sides[0], 6 * sides[1])).double().eval()
    load_pretrained(model, source.state_dict())
    images = torch.randn(2, 3, 28, 42, dtype=torch.float64)
    torch.testing.assert_close(model(upsampled(images, 7, sides)), source(images))


@pytest.mark.parametrize('build', [
    lambda patch: Swin(embed_dims=8, num_layers=(1, 1), num_heads=(1, 2), patch_size=patch,
                       window_size=2),
    lambda patch: PVT(embed_dims=(8, 16), num_layers=(1, 1), num_heads=(1, 2), sr_ratios=(2, 1),
                      mlp_ratios=(2, 2), patch_sizes=(patch, 2), out_indices=(0, 1))],
    ids=['Swin', 'PVT'])
def test_pyramids_resize_the_patches_of_the_image(build):
    source, model = randomize(build(4)).double().eval(), build(8).double().eval()
    load_pretrained(model, source.state_dict())
    images = torch.randn(2, 3, 32, 48, dtype=torch.float64)
    torch.testing.assert_close(model(upsampled(images, 4, (8, 8))), source(images))


@pytest.mark.parametrize('sizes, overlap', [((8, 2), True), ((4, 4), False)])
def test_overlapping_patches_and_those_of_maps_are_not_resized(sizes, overlap):
    """A first layer of random weights would make all others useless: none is sent to strict."""
    options = dict(embed_dims=(8, 16), num_layers=(1, 1), num_heads=(1, 2), sr_ratios=(2, 1),
                   mlp_ratios=(2, 2), out_indices=(0, 1), overlap=overlap)
    state = PVT(**options, patch_sizes=(4, 2)).state_dict()
    with pytest.raises(ValueError, match=r'Kernels of patches have (7 x 7|2 x 2) pixels in the '
                       r'file, (15 x 15|4 x 4) here, and are not resized') as error:
        load_pretrained(PVT(**options, patch_sizes=sizes), state)
    assert 'strict' not in str(error.value)


@pytest.mark.parametrize('channels', [1, 2, 4, 6])
def test_channels_are_those_of_timm(channels):
    source = ViT(**VIT, patch_size=8)
    model = ViT(**VIT, patch_size=8, in_channels=channels)
    load_pretrained(model, source.state_dict())
    torch.testing.assert_close(model.state_dict()[KEY], adapt_input_conv(
        channels, source.state_dict()[KEY]), rtol=0, atol=0)
    with pytest.raises(ValueError, match=rf'\(16, {channels}, 8, 8\) in the file, \(16, 3, 8, 8\)'):
        load_pretrained(source, model.state_dict())


@pytest.mark.parametrize('own_names', [True, False])
def test_what_is_resized_is_said(own_names, monkeypatch):
    lines = []
    monkeypatch.setattr(fitting, 'print_log', lambda text, logger, level=logging.INFO:
                        lines.append(text))
    source = ViT(**VIT, **TABLE, patch_size=7, img_size=28)
    state = source.state_dict() if own_names else convert_back(source.state_dict()).state_dict
    load_pretrained(ViT(**VIT, **TABLE, patch_size=8, img_size=32, in_channels=4), state,
                    name='x.pth')
    assert lines == ['x.pth: patches of 7 x 7 pixels are resized to 8 x 8 (FlexiViT), and the 3 '
                     'channels are repeated and scaled to 4']
    lines.clear()
    load_pretrained(ViT(**VIT, **TABLE, patch_size=(4, 8), img_size=28, in_channels=1), state,
                    name='x.pth')
    assert lines[0].endswith('to 4 x 8 (FlexiViT), and the 3 channels are summed to 1')
    assert '4 x 4 cells is resized to 7 x 4' in lines[1] and len(lines) == 2
    assert lines[1].endswith('img_size=(16, 32) keeps it as it is')


@pytest.mark.parametrize('change, said', [
    (lambda kernel: kernel * torch.nan, 'NaN or infinite'),
    (lambda kernel: kernel.char(), 'strided, int8'), (torch.Tensor.to_sparse, 'sparse_coo'),
    (lambda kernel: kernel.to('meta'), 'no values'),
    (lambda kernel: kernel[..., :0], r'\(16, 3, 7, 0\) in')])
def test_a_broken_kernel_of_another_size_is_named(change, said):
    state = ViT(**VIT, patch_size=7).state_dict()
    state[KEY] = change(state[KEY])
    with pytest.raises(ValueError, match=rf'{KEY}.*{said}'):
        load_pretrained(ViT(**VIT, patch_size=8), state)


@pytest.mark.parametrize('options', [TABLE, dict(rel_pos_encoding=dict(type='RotaryEmbedding'))],
                         ids=['table', 'rotary'])
def test_oblong_patches_with_padding_and_lists(options):
    options = dict(VIT, **options, pool=None, img_size=(24, 40), patch_size=(6, 10))
    model = randomize(ViT(**options, mask_padding=True)).double().eval()
    assert model.patch_embed.out_hw_shape((25, 40)) == (5, 4)
    batch = torch.randn(2, 3, 30, 45, dtype=torch.float64)
    outs, = model(batch, [(30, 45), (13, 28)])
    alone, = model(batch[1:, :, :13, :28])
    assert outs.shape[2:] == (5, 5) and alone.shape[2:] == (3, 3)
    torch.testing.assert_close(outs[1:, :, :3, :3], alone)
    assert not outs[1, :, 3:].any() and not outs[1, :, :, 3:].any()
    maps, = model([batch[0], batch[1, :, :13, :28]])
    torch.testing.assert_close(maps, outs)


def test_the_options_of_oblong_patches():
    state = ViT('tiny', patch_size=(8, 16), img_size=(32, 48), **TABLE).state_dict()
    found = needed_options({f'backbone.{key}': value for key, value in state.items()})
    assert {'model.backbone.patch_size=(8,16)', 'model.backbone.img_size=(32,48)'} <= set(found)


@pytest.mark.parametrize('build', [
    lambda: ViT(**VIT, patch_size=(0, 8)),
    lambda: Swin(embed_dims=8, num_layers=(1,), num_heads=(1,), patch_size=(4, 4))])
def test_other_patch_sizes_are_named(build):
    with pytest.raises(ValueError, match='patch_size='):
        build()
