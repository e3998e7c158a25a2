"""Files of another patch size or of other channels (FlexiViT's resize), and oblong patches."""
import pytest
import torch
import torch.nn.functional as F
from helpers.tiny_backbones import randomize
from timm.models import adapt_input_conv

from mmposenc.backbones import PVT, Swin, ViT, load_pretrained

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


def plain(**options):
    """By the sides of patches, on 4 x 6 of them."""
    return lambda sides: ViT(**VIT, **options, pool=None, out_indices=(0, 1), class_token=True,
                             patch_size=sides, img_size=(4 * sides[0], 6 * sides[1]))


@pytest.mark.parametrize('build, sides', [
    *((build, sides) for build in (plain(**TABLE), plain(
        rel_pos_encoding=dict(type='RotaryEmbedding'))) for sides in ((8, 8), (16, 16), (7, 10))),
    (lambda sides: Swin(embed_dims=8, num_layers=(1, 1), num_heads=(1, 2), patch_size=sides[0],
                        window_size=2), (8, 8)),
    (lambda sides: PVT(embed_dims=(8, 16), num_layers=(1, 1), num_heads=(1, 2), sr_ratios=(2, 1),
                       mlp_ratios=(2, 2), patch_sizes=(sides[0], 2), out_indices=(0, 1)), (8, 8))])
def test_a_resized_image_has_the_tokens_of_the_image(build, sides):
    """The defining property (FlexiViT, Sec. 3.4), of the whole model, at an oblong size."""
    source, model = randomize(build((7, 7))).double().eval(), build(sides).double().eval()
    load_pretrained(model, source.state_dict())
    images = torch.randn(2, 3, 28, 42, dtype=torch.float64)
    torch.testing.assert_close(model(upsampled(images, 7, sides)), source(images))


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


@pytest.mark.parametrize('change, said', [
    (lambda kernel: kernel * torch.nan, 'NaN or infinite'),
    (lambda kernel: kernel[..., :0], r'\(16, 3, 7, 0\) in')])
def test_a_broken_kernel_of_another_size_is_named(change, said):
    state = ViT(**VIT, patch_size=7).state_dict()
    state[KEY] = change(state[KEY])
    with pytest.raises(ValueError, match=rf'{KEY}.*{said}'):
        load_pretrained(ViT(**VIT, patch_size=8), state)


@pytest.mark.parametrize('options', [TABLE, dict(rel_pos_encoding=dict(type='RotaryEmbedding'))],
                         ids=['table', 'rotary'])
def test_oblong_patches_with_padding(options):
    options = dict(VIT, **options, pool=None, img_size=(24, 40), patch_size=(6, 10))
    model = randomize(ViT(**options, mask_padding=True)).double().eval()
    assert model.patch_embed.out_hw_shape((25, 40)) == (5, 4)
    batch = torch.randn(2, 3, 30, 45, dtype=torch.float64)
    outs, = model(batch, [(30, 45), (13, 28)])
    alone, = model(batch[1:, :, :13, :28])
    assert outs.shape[2:] == (5, 5) and alone.shape[2:] == (3, 3)
    torch.testing.assert_close(outs[1:, :, :3, :3], alone)
    assert not outs[1, :, 3:].any() and not outs[1, :, :, 3:].any()
