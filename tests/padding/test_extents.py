"""Functions of a padded batch against the same functions of each image alone."""
import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mmposenc.padding import KeptOut
from mmposenc.padding.layers import put_forms

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
    with KeptOut(IMAGES, FULL) as kept:
        outs = net(x)
    total = 0.0
    for level, maps in enumerate(outs):
        for i, (rows, cols) in enumerate(kept.extents(maps)):
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
              zip(net(leaf), [kept.extents(maps)[i] for maps in outs], strict=True))
    wants = torch.autograd.grad(own, [*leaves, *net.parameters()], allow_unused=True)
    for i, (rows, cols) in enumerate(IMAGES):
        assert torch.allclose(grads[0][i:i + 1, :, :rows, :cols], wants[i], atol=1e-10)
        assert grads[0][i, :, rows:].abs().sum() == 0 and grads[0][i, :, :, cols:].abs().sum() == 0
    for got, want in zip(grads[1:], wants[len(IMAGES):], strict=True):
        assert (got is None) == (want is None)
        assert got is None or torch.allclose(got, want, atol=1e-9)


def test_code_that_is_compiled_within_it_has_no_break_and_takes_other_sizes():
    net = nn.Sequential(nn.Conv2d(4, 8, 3, 2, 1), nn.MaxPool2d(3, 2, 1)).double()
    graphs = []

    def run(x, images):
        with KeptOut(images, (x.shape[2], x.shape[3])):
            return net(x)

    def count(graph, inputs):
        graphs.append(graph)
        return graph.forward
    torch._dynamo.reset()
    compiled = torch.compile(run, backend=count, fullgraph=True, dynamic=True)
    for full, images in (((40, 52), [(39, 37), (22, 51)]), ((61, 33), [(58, 29), (41, 30)])):
        x = torch.randn(2, 4, *full, dtype=torch.float64)
        with torch.no_grad():
            got = compiled(x, images)
            for i, (rows, cols) in enumerate(images):
                want = net(x[i:i + 1, :, :rows, :cols])
                assert torch.allclose(got[i:i + 1, :, :want.shape[2], :want.shape[3]], want)
    assert len(graphs) == 1


@pytest.mark.parametrize('function', [
    lambda x: F.max_pool2d(x, 2, ceil_mode=True), lambda x: F.avg_pool2d(x, 3, 2, 1),
    lambda x: F.adaptive_avg_pool2d(x, (2, 3)), lambda x: F.adaptive_max_pool2d(x, 2),
    lambda x: F.instance_norm(x[..., :]), lambda x: F.pixel_shuffle(x, 2),
    lambda x: F.interpolate(x, scale_factor=2, mode='bicubic'),
    lambda x: F.conv2d(x, torch.ones(2, 4, 3, 3, dtype=x.dtype), padding=2, dilation=2),
    lambda x: F.conv2d(x, torch.ones(2, 4, 1, 1, dtype=x.dtype), stride=3)])
def test_each_function_alone(function):
    padded, images = batch()
    if 'instance' in str(function.__code__.co_names):
        images = [image.expand(-1, -1, max(2, image.shape[2]), -1) for image in images]
        sizes = [tuple(image.shape[2:]) for image in images]
        padded[2, :, :2, :5] = images[2][0]
    else:
        sizes = IMAGES
    with KeptOut(sizes, FULL) as kept:
        out = function(padded)
    for i, (rows, cols) in enumerate(kept.extents(out)):
        want = function(images[i])
        assert (rows, cols) == tuple(want.shape[2:])
        assert torch.allclose(out[i:i + 1, :, :rows, :cols], want, atol=1e-12)


@pytest.mark.parametrize('affine', [True, False])
@pytest.mark.parametrize('layout', [torch.contiguous_format, torch.channels_last])
def test_batch_norm_takes_the_statistics_of_valid_cells(layout, affine):
    padded, images = batch()
    padded = padded.to(memory_format=layout).requires_grad_()
    norm = nn.BatchNorm2d(4, affine=affine).double()
    if affine:
        nn.init.normal_(norm.weight), nn.init.normal_(norm.bias)
    other = copy.deepcopy(norm)
    cells = torch.cat([image.flatten(2) for image in images], 2)[..., None]  # (1, C, N, 1)
    cells.requires_grad_()
    want = other(cells)
    (want * torch.arange(want.numel()).view(want.shape).sin()).sum().backward()
    with KeptOut(IMAGES, FULL):
        out = norm(padded)
    assert out.is_contiguous(memory_format=layout)
    parts = [[part.view(4, *size) for part, size in
              zip(whole[0, :, :, 0].split([rows * cols for rows, cols in IMAGES], 1), IMAGES,
                  strict=True)]
             for whole in (want, cells.grad, torch.arange(want.numel()).view(want.shape).sin())]
    sum((out[i, :, :rows, :cols] * parts[2][i]).sum()
        for i, (rows, cols) in enumerate(IMAGES)).backward()
    for i, (rows, cols) in enumerate(IMAGES):
        assert torch.allclose(out[i, :, :rows, :cols], parts[0][i], atol=1e-12)
        grad = padded.grad[i].clone()
        assert torch.allclose(grad[:, :rows, :cols], parts[1][i], atol=1e-12)
        grad[:, :rows, :cols] = 0
        assert torch.equal(grad, torch.zeros_like(grad))
    for name, buffer in norm.named_buffers():
        assert torch.allclose(buffer, other.get_buffer(name)), name


def test_sync_batch_norm_of_several_processes_gets_valid_cells_alone(monkeypatch):
    padded, images = batch()
    net = nn.Sequential(nn.SyncBatchNorm(4)).double()
    put_forms(net)
    seen = []
    monkeypatch.setattr(nn.SyncBatchNorm, 'forward', lambda self, x: seen.append(x) or 2 * x)
    monkeypatch.setattr('torch.distributed.is_initialized', lambda: True)
    monkeypatch.setattr('torch.distributed.get_world_size', lambda: 2)
    with KeptOut(IMAGES, FULL):
        out = net(padded)
    assert torch.equal(seen[0], torch.cat([image.flatten(2) for image in images], 2))
    for i, (rows, cols) in enumerate(IMAGES):
        assert torch.equal(out[i, :, :rows, :cols], 2 * images[i][0])
        assert out[i, :, rows:].abs().sum() == 0 and out[i, :, :, cols:].abs().sum() == 0


def test_what_is_not_known_is_an_error():
    padded, _ = batch()
    with KeptOut(IMAGES, FULL):
        with pytest.raises(NotImplementedError, match='grid_sample reads beyond an image'):
            F.grid_sample(padded, torch.zeros(3, 2, 2, 2, dtype=torch.float64))
        with pytest.raises(NotImplementedError, match='pad reads beyond an image'):
            F.pad(padded, (1, 1))
        with pytest.raises(NotImplementedError, match="padding='same' with an even kernel"):
            F.conv2d(padded, torch.ones(1, 4, 2, 2, dtype=torch.float64), padding='same')
        with pytest.raises(ValueError, match=r'a map of \(3, 4, 12, 12\) did not come from'):
            F.max_pool2d(padded[:, :, 1:], 2)
        with pytest.raises(ValueError, match=r'resized to \(3, 3\), at which the cells'):
            F.interpolate(padded, size=3)
    with KeptOut(IMAGES, FULL) as kept, pytest.raises(ValueError, match='by one way and'):
        kept.note(padded, [(1, 1)] * 3)
