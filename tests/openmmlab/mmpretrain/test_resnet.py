"""CP-ResNet: upstream without ContextPool, and what stands where with it."""
import pytest
import torch
from helpers.scripts import load_tool
from helpers.tiny_backbones import randomize

from mmposenc.backbones import CPResNet, count_macs
from mmposenc.encodings import ContextPool


@pytest.mark.parametrize('depth, size', [(50, (70, 96)), (44, (32, 32))])
def test_equals_upstream_without_context_pool(depth, size):
    """For small images mmpretrain's ResNet_CIFAR with three stages."""
    from mmpretrain.models import ResNet, ResNet_CIFAR

    class Small(ResNet_CIFAR):
        arch_settings = CPResNet.arch_settings

    if depth == 50:
        kind, options = ResNet, dict(base_channels=8, stem_channels=8, out_indices=(0, 1, 2, 3))
        own = options
    else:
        kind, options, own = Small, dict(
            num_stages=3, strides=(1, 2, 2), dilations=(1, 1, 1), out_indices=(2,),
            stem_channels=16, base_channels=16), {}
    ours, theirs = CPResNet(depth, context_pool=None, **own).eval(), kind(depth, **options)
    theirs.eval()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 3, *size)
    torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=0)


@pytest.mark.parametrize('place', [0, 2])
def test_each_pool_stands_where_it_says(place):
    """The model, taken apart: pool, every second cell, then the stage with stride 1."""
    model = randomize(CPResNet(50, base_channels=8, stem_channels=8, pool_at=(place,)), 0.2).eval()
    assert list(model.context_pools) == [str(place)]
    pool = model.context_pools[str(place)]
    assert isinstance(pool, ContextPool) and pool.ratio == 0.05 and pool.stride == 2
    seen = {}
    pool.register_forward_pre_hook(lambda m, args: seen.update(x=args[0], hw=args[1]))
    x = torch.randn(2, 3, 64, 64)
    out, = model(x)
    every = ContextPool(pool.embed_dims, ratio=0.05)
    every.load_state_dict(pool.state_dict())
    height, width = seen['hw']
    assert (height, width) == ((32, 32) if place == 0 else (8, 8))
    y = every(seen['x'], seen['hw']).view(2, height, width, -1)[:, ::2, ::2].permute(0, 3, 1, 2)
    for name in model.res_layers[place:]:
        y = getattr(model, name)(y)
    torch.testing.assert_close(out, y, atol=1e-4, rtol=1e-4)


def test_starts_and_freezes():
    """(That all of it trains: tests/configs/test_gradients.py.)"""
    model = CPResNet(44, pool_at=(1, 2))
    model.init_weights()
    last = model.context_pools['1'].predictor.conv2
    assert 0.01 < float(last.weight.std()) < 0.03 and not last.bias.any()
    frozen = CPResNet(50, base_channels=8, stem_channels=8, frozen_stages=1).train()
    assert not any(p.requires_grad for place in '01'
                   for p in frozen.context_pools[place].parameters())
    assert all(p.requires_grad for p in frozen.context_pools['2'].parameters())


def test_multiply_accumulates():
    model, plain = CPResNet(44), CPResNet(44, context_pool=None)
    extra = count_macs(model, (32, 32)) - count_macs(plain, (32, 32))
    expected = 0
    for side, dims in ((32, 16), (16, 32)):
        cells, hidden = side * side, dims // 4
        expected += cells * 9 * (dims * hidden + hidden * 2)  # the predictor
        expected += cells // 4 * cells * dims  # the mean
    # The shortcut's convolution sees the pooled map either way.
    assert extra == expected
    means = sum((side // 2) ** 2 * side ** 2 * dims for side, dims in ((32, 16), (16, 32)))
    count = load_tool('model_table').count_as_papers
    assert count(model, (32, 32), True) - count(model, (32, 32), False) == means
