"""Functions of a padded batch against the same functions of each image alone."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from mmposenc.padding import IgnorePadding
from mmposenc.padding.layers import hide_padding_from_layers

IMAGES = [(11, 7), (6, 12), (1, 5)]
FULL = (13, 12)


def batch(channels=4, junk=float('nan'), dtype=torch.float64):
    """Random images in a batch whose padding holds junk, and its images."""
    generator = torch.Generator().manual_seed(0)
    images = [torch.randn(1, channels, *size, generator=generator, dtype=dtype) for size in IMAGES]
    padded = torch.full((len(IMAGES), channels, *FULL), junk, dtype=dtype)
    for row, image in zip(padded, images, strict=True):
        row[:, :image.shape[2], :image.shape[3]] = image[0]
    return padded, images


@pytest.mark.parametrize('function', [
    lambda x: F.max_pool2d(x, 2, ceil_mode=True), lambda x: F.avg_pool2d(x, 3, 2, 1),
    lambda x: F.adaptive_avg_pool2d(x, (2, 3)), lambda x: F.adaptive_max_pool2d(x, 2),
    lambda x: F.conv2d(F.adaptive_avg_pool2d(x, FULL), torch.ones(2, 4, 1, 1, dtype=x.dtype)),
    lambda x: F.instance_norm(x), lambda x: F.group_norm(x, 2), lambda x: F.pixel_shuffle(x, 2),
    lambda x: F.batch_norm(x, None, None, training=True),  # without running statistics
    lambda x: F.interpolate(x, scale_factor=2, mode='bicubic'),
    lambda x: F.conv2d(x, torch.ones(2, 4, 3, 3, dtype=x.dtype), padding=2, dilation=2),
    lambda x: F.conv2d(x, torch.ones(2, 4, 1, 1, dtype=x.dtype), stride=3),
    lambda x: F.conv2d(x, torch.ones(4, 1, 3, 3, dtype=x.dtype), padding='same', dilation=2,
                       groups=4),
    lambda x: F.conv_transpose2d(x, torch.ones(4, 2, 2, 2, dtype=x.dtype), stride=2)])
def test_each_function_alone(function):
    padded, images = batch()
    with IgnorePadding(IMAGES, FULL) as context:
        out = function(padded)
    for i, (rows, cols) in enumerate(context.extents(out)):
        want = function(images[i])
        assert (rows, cols) == tuple(want.shape[2:])
        assert torch.allclose(out[i:i + 1, :, :rows, :cols], want, atol=1e-12)


class ModulatedDeformConv2dPack(nn.Module):
    """A layer with the name and attributes of mmcv's, that calls functions which are refused."""

    stride, padding, dilation = (2, 1), (1, 0), (1, 1)

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 4, 3, 2))

    def forward(self, x):
        return F.conv2d(F.pad(x, (0, 0, 1, 1)), self.weight, stride=self.stride)


def test_a_deformable_convolution_reads_zeros_on_padding():
    net = nn.Sequential(ModulatedDeformConv2dPack(), nn.MaxPool2d(2, 1)).double()
    padded, images = batch()
    sizes, images = IMAGES[:2], images[:2]  # the third is narrower than the kernel
    hide_padding_from_layers(net)
    with IgnorePadding(sizes, FULL) as context:
        out = net(padded[:2])
    for i, image in enumerate(images):
        want, (rows, cols) = net(image), context.extents(out)[i]
        assert (rows, cols) == tuple(want.shape[2:])
        assert torch.allclose(out[i:i + 1, :, :rows, :cols], want, atol=1e-12)
    assert context.masking_layer is None


def test_what_is_not_known_is_an_error():
    padded, _ = batch()
    with IgnorePadding(IMAGES, FULL):
        with pytest.raises(NotImplementedError, match='grid_sample reads the padding'):
            F.grid_sample(padded, torch.zeros(3, 2, 2, 2, dtype=torch.float64))
        with pytest.raises(NotImplementedError, match='pad reads the padding'):
            F.pad(padded, (1, 1))
        with pytest.raises(NotImplementedError, match="padding='same' with an even kernel"):
            F.conv2d(padded, torch.ones(1, 4, 2, 2, dtype=torch.float64), padding='same')
        with pytest.raises(ValueError, match=r'a map of \(3, 4, 12, 12\) was not computed from'):
            F.max_pool2d(padded[:, :, 1:], 2)
        with pytest.raises(ValueError, match=r'resized to \(3, 3\), but valid cells'):
            F.interpolate(padded, size=3)
    context = IgnorePadding(IMAGES, FULL)
    with pytest.raises(ValueError, match='different valid cells'):
        context.with_extents(padded, [(1, 1)] * 3)


class Other(TorchFunctionMode):
    """A mode of someone else's, which leaves functions alone."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_a_layer_finds_the_innermost_mode_whatever_lies_between():
    assert IgnorePadding.current() is None
    with Other():
        assert IgnorePadding.current() is None
    with IgnorePadding([(2, 2)], (2, 2)) as outer:
        assert IgnorePadding.current() is outer
        with Other(), torch.device('cpu'):
            assert IgnorePadding.current() is outer
            with IgnorePadding([(2, 2)], (2, 2)) as inner, Other():
                assert IgnorePadding.current() is inner
            assert IgnorePadding.current() is outer
    assert IgnorePadding.current() is None
