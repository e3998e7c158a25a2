"""Functions of a padded batch against the same functions of each image alone."""
import copy
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from mmposenc.padding import KeptOut, masked
from mmposenc.padding.layers import put_forms
from mmposenc.padding.trial import what_reads_padding

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


def step(net, x, sizes):
    """The sum of maps of two strides."""
    with KeptOut(sizes, (x.shape[2], x.shape[3])):
        fine = net[1](net[0](x))
        coarse = net[3](net[2](fine))
        return fine + F.interpolate(coarse, size=fine.shape[2:])


def test_a_tensor_of_sizes_gives_what_numbers_give():
    """Maps, gradients and statistics, with junk in the padding."""
    net = nn.Sequential(nn.Conv2d(4, 4, 3, 1, 2, 2), nn.BatchNorm2d(4), nn.MaxPool2d(3, 2, 1),
                        nn.Conv2d(4, 4, 1)).double()
    results = []
    for sizes in (IMAGES, torch.tensor(IMAGES)):
        model, x = copy.deepcopy(net), batch()[0].requires_grad_()
        out = step(model, x, sizes)
        valid = [own[:, :rows, :cols] for own, (rows, cols) in zip(out, IMAGES, strict=True)]
        sum((own * own.detach().sin()).sum() for own in valid).backward()
        results.append([[own.detach() for own in valid], x.grad, list(model.buffers()),
                        [p.grad for p in model.parameters()]])
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)


def test_no_window_of_padding_is_without_a_largest_cell():
    """Of one that holds -inf alone, inductor 2.13 writes the gradient beside the map."""
    seen = []

    def pool(x, *args):
        seen.append(x)
        return F.max_pool2d(x, *args)
    x = batch()[0]
    kept = KeptOut(torch.tensor(IMAGES), FULL)
    masked.max_pool2d(kept, pool, x, 3, 2, 1)
    assert seen[0].isfinite().all() and not x.isfinite().all()


def test_extents_and_refusals_of_a_tensor_of_sizes():
    x, extents = batch()[0], torch.tensor(IMAGES)
    with KeptOut(extents, FULL) as kept:
        assert torch.equal(kept.extents(F.max_pool2d(x, 3, 2, 1)), (extents + 1) // 2)
        F.max_pool2d(x, 1, 2)  # by another way as many cells
        with pytest.raises(ValueError, match='different valid cells'):
            F.conv2d(x, torch.ones(1, 4, 2, 2, dtype=x.dtype), stride=2, padding=(1, 0))
    with KeptOut(torch.ones(3, 2, dtype=torch.long), (1, 2)):  # a coarser map of one cell
        coarse = F.max_pool2d(F.max_pool2d(x[:, :, :1, :2], 3, 2, 1), 3, 2, 1)
        assert torch.equal(F.interpolate(coarse, size=(1, 1)), coarse)
    with KeptOut(extents, FULL):
        for function, name in ((lambda x: F.group_norm(x, 2), 'group_norm'),
                               (lambda x: F.interpolate(x, size=(5, 5)), 'interpolate'),
                               (lambda x: F.max_pool2d(x, 2, ceil_mode=True), 'max_pool2d')):
            with pytest.raises(NotImplementedError, match=f'{name}.* has no form for image sizes'):
                function(x)


@pytest.mark.parametrize('function', [
    lambda x: F.max_pool2d(x, 2, ceil_mode=True), lambda x: F.avg_pool2d(x, 3, 2, 1),
    lambda x: F.adaptive_avg_pool2d(x, (2, 3)), lambda x: F.adaptive_max_pool2d(x, 2),
    lambda x: F.conv2d(F.adaptive_avg_pool2d(x, FULL), torch.ones(2, 4, 1, 1, dtype=x.dtype)),
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

    def valid(maps):
        """The cells of all images, (1, C, N, 1)."""
        return torch.cat([own[:, :rows, :cols].flatten(1) for own, (rows, cols) in
                          zip(maps, IMAGES, strict=True)], 1)[None, ..., None]
    cells = valid([image[0] for image in images]).requires_grad_()
    want = other(cells)
    weight = torch.arange(want.numel()).view(want.shape).sin()
    (want * weight).sum().backward()
    with KeptOut(IMAGES, FULL):
        out = norm(padded)
    assert out.is_contiguous(memory_format=layout)
    (valid(out) * weight).sum().backward()
    for got, expected in ((valid(out), want), (valid(padded.grad), cells.grad)):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
    for each in (out, padded.grad):  # nothing elsewhere
        assert each.count_nonzero() == valid(each).count_nonzero()
    for one, two in zip(norm.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad)
    for name, buffer in norm.named_buffers():
        assert torch.allclose(buffer, other.get_buffer(name)), name


def test_a_synchronised_batch_norm_gathers_valid_cells_alone(monkeypatch):
    """torch's own takes what it is given together with other processes; a trial asks none."""
    seen, own_forward = [], nn.SyncBatchNorm.forward

    def forward(self, x):
        if not dist.is_initialized():
            return own_forward(self, x)
        seen.append(x)
        return x * 2

    monkeypatch.setattr(nn.SyncBatchNorm, 'forward', forward)
    net = nn.Sequential(nn.Conv2d(4, 4, 8, 8), nn.SyncBatchNorm(4)).double()
    put_forms(net)
    net.data_preprocessor = SimpleNamespace(mean=torch.zeros(4))
    monkeypatch.setattr(dist, 'is_initialized', lambda: True)
    monkeypatch.setattr(dist, 'get_world_size', lambda: 2)

    def maps(x, kept):
        with kept or nullcontext():
            return [net(x)]
    assert what_reads_padding(net, maps) is None and not seen
    padded, images = batch()
    with KeptOut(IMAGES, FULL):
        out = net[1](padded)
    assert torch.equal(seen[0], torch.cat([image.flatten(2) for image in images], 2))
    for own, image, (rows, cols) in zip(out, images, IMAGES, strict=True):
        assert torch.equal(own[:, :rows, :cols], 2 * image[0])
        assert own[:, rows:].abs().sum() == 0 and own[:, :, cols:].abs().sum() == 0


def test_what_is_not_known_is_an_error():
    padded, _ = batch()
    with KeptOut(IMAGES, FULL):
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
    with KeptOut(IMAGES, FULL) as kept, pytest.raises(ValueError, match='different valid cells'):
        kept.remember(padded, [(1, 1)] * 3)


class Other(TorchFunctionMode):
    """A mode of someone else's, which leaves functions alone."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_a_layer_finds_the_innermost_mode_whatever_lies_between():
    assert KeptOut.current() is None
    with Other():
        assert KeptOut.current() is None
    with KeptOut([(2, 2)], (2, 2)) as outer:
        assert KeptOut.current() is outer
        with Other(), torch.device('cpu'):
            assert KeptOut.current() is outer
            with KeptOut([(2, 2)], (2, 2)) as inner, Other():
                assert KeptOut.current() is inner
            assert KeptOut.current() is outer
    assert KeptOut.current() is None
