"""Functions of a padded batch against the same functions of each image alone."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from mmposenc.padding import IgnorePadding
from mmposenc.padding.layers import register_hooks

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


class Net(nn.Module):
    """A pyramid with strides, dilation, groups, pooling, resizing and two kinds of norms."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(4, 8, 7, 2, 3)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.wide = nn.Conv2d(8, 8, 3, padding='same', dilation=2, groups=4)
        self.norm = nn.GroupNorm(2, 8)
        self.point = nn.Conv2d(8, 8, 1, stride=2)
        self.mean = nn.AvgPool2d(3, 1, 1)
        self.up = nn.ConvTranspose2d(8, 8, 2, 2)
        self.frozen = nn.BatchNorm2d(8).eval()

    def forward(self, x):
        a = self.stem(x)
        b = self.frozen(self.pool(a.relu()))
        b = b + self.norm(self.wide(b))
        c = self.mean(self.point(b)) * F.adaptive_avg_pool2d(b, 1).sigmoid()
        b = b + F.interpolate(c, size=b.shape[-2:], mode='nearest')
        a = a + F.interpolate(b, size=a.shape[-2:], mode='bilinear', align_corners=False)
        return a, b, self.up(c)


def test_a_network_gives_for_an_image_what_it_gives_alone():
    padded, images = batch()
    net = Net().double()
    alone = [net(image.clone().requires_grad_()) for image in images]
    x = padded.clone().requires_grad_()
    with IgnorePadding(IMAGES, FULL) as context:
        outs = net(x)
    total = 0.0
    for level, maps in enumerate(outs):
        for i, (rows, cols) in enumerate(context.extents(maps)):
            want = alone[i][level]
            if level == 2:  # a map enlarged by two is cut to the cells that its image has there
                want = want[..., :rows, :cols]
            assert torch.allclose(maps[i:i + 1, :, :rows, :cols], want, atol=1e-12)
            total = total + maps[i, :, :rows, :cols].square().sum()
    grads = torch.autograd.grad(total, [x, *net.parameters()], allow_unused=True)
    assert torch.isfinite(grads[0]).all()
    leaves = [image.clone().requires_grad_() for image in images]
    own = sum(level[..., :rows, :cols].square().sum()
              for i, leaf in enumerate(leaves) for level, (rows, cols) in
              zip(net(leaf), [context.extents(maps)[i] for maps in outs], strict=True))
    wants = torch.autograd.grad(own, [*leaves, *net.parameters()], allow_unused=True)
    for i, (rows, cols) in enumerate(IMAGES):
        assert torch.allclose(grads[0][i:i + 1, :, :rows, :cols], wants[i], atol=1e-10)
        assert grads[0][i, :, rows:].abs().sum() == 0 and grads[0][i, :, :, cols:].abs().sum() == 0
    for got, want in zip(grads[1:], wants[len(IMAGES):], strict=True):
        assert (got is None) == (want is None)
        assert got is None or torch.allclose(got, want, atol=1e-9)


@pytest.mark.parametrize('function', [
    lambda x: F.max_pool2d(x, 2, ceil_mode=True), lambda x: F.avg_pool2d(x, 3, 2, 1),
    lambda x: F.adaptive_avg_pool2d(x, (2, 3)), lambda x: F.adaptive_max_pool2d(x, 2),
    lambda x: F.conv2d(F.adaptive_avg_pool2d(x, FULL), torch.ones(2, 4, 1, 1, dtype=x.dtype)),
    lambda x: F.instance_norm(x), lambda x: F.group_norm(x, 2), lambda x: F.pixel_shuffle(x, 2),
    lambda x: F.batch_norm(x, None, None, training=True),  # without running statistics
    lambda x: F.interpolate(x, scale_factor=2, mode='bicubic'),
    lambda x: F.conv2d(x, torch.ones(2, 4, 3, 3, dtype=x.dtype), padding=2, dilation=2),
    lambda x: F.conv2d(x, torch.ones(2, 4, 1, 1, dtype=x.dtype), stride=3)])
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
    register_hooks(net)
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
