"""PEG against a loop over windows, and its promises about padding."""
import pytest
import torch
from torch import nn

from mmposenc.encodings import PEG

GRIDS = [(4, 6), (1, 7), (5, 1), (3, 3)]


def loop(peg, x, hw):
    """y = x + conv(x) written from the paper: sums over windows, zero outside the image."""
    height, width = hw
    for layer in peg.proj:
        if isinstance(layer, nn.BatchNorm2d):
            x = layer(x.view(1, height, width, -1).permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
            x = x.reshape(height * width, -1)
            continue
        if isinstance(layer, nn.ReLU):
            x = x.clamp(min=0)
            continue
        kernel = layer.kernel_size[0]
        pad = layer.padding[0]
        lost = 0 if pad or kernel == 1 else kernel - 1
        out = torch.zeros((height - lost) * (width - lost), layer.out_channels, dtype=x.dtype)
        for row in range(height - lost):
            for col in range(width - lost):
                value = torch.zeros(layer.out_channels, dtype=x.dtype)
                for i in range(kernel):
                    for j in range(kernel):
                        r, c = row + i - pad, col + j - pad
                        if 0 <= r < height and 0 <= c < width:
                            token, weight = x[r * width + c], layer.weight[:, :, i, j]
                            value += (weight[:, 0] * token if layer.groups > 1
                                      else weight @ token)
                if layer.bias is not None:
                    value = value + layer.bias
                out[row * (width - lost) + col] = value
        x, height, width = out, height - lost, width - lost
    return x


def randomize(module):
    torch.manual_seed(1)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module.double()


@pytest.mark.parametrize('hw', GRIDS)
@pytest.mark.parametrize('options', [
    dict(), dict(kernel_size=5), dict(kernel_size=1), dict(kernel_size=27), dict(bias=False),
    dict(conv='separable'), dict(conv='dense'), dict(conv='dense', num_layers=2),
    dict(num_layers=3), dict(norm_act=True, bias=False),
    dict(conv='separable', num_layers=2, norm_act=True)], ids=str)
def test_equals_the_loop(hw, options):
    peg = randomize(PEG(4, **options)).eval()
    x = torch.randn(2, hw[0] * hw[1], 4, dtype=torch.float64)
    expected = torch.stack([x[b] + loop(peg, x[b], hw) for b in range(2)])
    torch.testing.assert_close(peg(x, hw), expected)


@pytest.mark.parametrize('options', [dict(), dict(num_layers=2), dict(conv='dense')], ids=str)
def test_without_padding_the_grid_shrinks_and_nothing_is_added(options):
    peg = randomize(PEG(3, padding='none', **options))
    x = torch.randn(1, 6 * 7, 3, dtype=torch.float64)
    torch.testing.assert_close(peg(x, (6, 7))[0], loop(peg, x[0], (6, 7)))
    lost = 2 * peg.num_layers
    assert peg.out_hw_shape((6, 7)) == (6 - lost, 7 - lost)
    assert PEG(3, padding='none').out_hw_shape((14, 14)) == (12, 12)  # 196 -> 144 tokens


def test_without_padding_a_small_grid_is_an_error():
    with pytest.raises(ValueError, match=r"hw_shape=\(2, 7\) is too small: padding='none'"):
        PEG(3, padding='none')(torch.zeros(1, 14, 3), (2, 7))


@pytest.mark.parametrize('options', [
    dict(), dict(conv='separable', num_layers=2), dict(norm_act=True, bias=False),
    dict(kernel_size=5, num_layers=2, norm_act=True)], ids=str)
@pytest.mark.parametrize('training', [False, True])
def test_valid_tokens_do_not_see_padding(options, training):
    """Neither what padding holds nor how much of it there is matters, in values, gradients and
    statistics; padded tokens come back as they were."""
    torch.manual_seed(0)
    image = torch.randn(2, 3, 5, 4, dtype=torch.float64)  # B, H, W, C
    results = []
    for (height, width), fill in (((3, 5), 0.0), ((6, 5), 7.0), ((4, 9), float('nan'))):
        peg = randomize(PEG(4, **options)).train(training)
        x = torch.full((2, height, width, 4), fill, dtype=torch.float64)
        x[:, :3, :5] = image
        x.requires_grad_()
        mask = torch.ones(2, height, width, dtype=torch.bool)
        mask[:, :3, :5] = False
        out = peg(x.flatten(1, 2), (height, width), padding_mask=mask).view_as(x)
        torch.testing.assert_close(out[mask], x[mask], equal_nan=True, rtol=0, atol=0)
        out[:, :3, :5].square().sum().backward()
        stats = [b.clone() for n, b in peg.named_buffers() if 'running' in n]
        results.append([out[:, :3, :5].detach(), x.grad[:, :3, :5],
                        *(p.grad for p in peg.parameters()), *stats])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            torch.testing.assert_close(a, b)


def test_the_papers_snippet_leaks_and_this_does_not():
    """Restoring padded outputs alone, as the paper's snippet, lets padded inputs in."""
    peg = randomize(PEG(2))
    x = torch.randn(1, 12, 2, dtype=torch.float64)
    mask = torch.zeros(1, 3, 4, dtype=torch.bool)
    mask[:, :, 2:] = True
    changed = x.clone()
    changed[:, mask.flatten()] += 1
    valid = ~mask.flatten()
    assert (peg(x, (3, 4)) - peg(changed, (3, 4)))[:, valid].abs().max() > 1e-2
    torch.testing.assert_close(peg(x, (3, 4), padding_mask=mask)[:, valid],
                               peg(changed, (3, 4), padding_mask=mask)[:, valid])


@pytest.mark.parametrize('prefix', [1, 2])
def test_prefix_tokens_come_back_unchanged(prefix):
    peg = randomize(PEG(3))
    x = torch.randn(2, prefix + 20, 3, dtype=torch.float64)
    out = peg(x, (4, 5), num_prefix_tokens=prefix)
    torch.testing.assert_close(out[:, :prefix], x[:, :prefix], rtol=0, atol=0)
    torch.testing.assert_close(out[:, prefix:], peg(x[:, prefix:].contiguous(), (4, 5)))


@pytest.mark.parametrize('options', [dict(), dict(conv='separable'), dict(conv='dense'),
                                     dict(norm_act=True), dict(num_layers=2)], ids=str)
def test_gradients(options):
    peg = randomize(PEG(2, **options)).train()
    x = torch.randn(2, 6, 2, dtype=torch.float64, requires_grad=True)
    mask = torch.zeros(2, 2, 3, dtype=torch.bool)
    mask[1, :, 2:] = True
    assert torch.autograd.gradcheck(lambda t: peg(t, (2, 3), padding_mask=mask), x)
    peg(x, (2, 3)).square().sum().backward()
    for name, parameter in peg.named_parameters():
        if 'bias' in name and any(isinstance(m, nn.BatchNorm2d) for m in peg.proj) \
                and name.endswith('0.bias'):
            continue  # a bias in front of BatchNorm has no effect
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize('dims', [8, 64])
def test_parameter_counts(dims):
    def count(**options):
        return sum(p.numel() for p in PEG(dims, **options).parameters())
    assert count(bias=False) == dims * 9
    assert count() == dims * 9 + dims
    assert count(kernel_size=27, bias=False) == dims * 27 ** 2
    assert count(conv='separable', bias=False) == dims * dims + 9 * dims
    assert count(conv='dense', bias=False) == 9 * dims * dims
    assert count(num_layers=4, bias=False) == 4 * 9 * dims


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


def test_compiles_without_breaks():
    peg = PEG(4)
    x = torch.randn(2, 12, 4)
    compiled = torch.compile(peg, fullgraph=True, backend='aot_eager')
    torch.testing.assert_close(compiled(x, (3, 4)), peg(x, (3, 4)))


@pytest.mark.parametrize('options, message', [
    (dict(conv='circular'), "conv='circular' must be one of"),
    (dict(kernel_size=4), 'kernel_size=4 must be odd'),
    (dict(num_layers=0), 'num_layers=0'),
    (dict(padding='same'), "padding='same' must be 'zeros' or 'none'"),
    (dict(apply_to='k'), "apply_to='k' must be"),
    (dict(apply_to='qk', padding='none'), "apply_to='qk' with padding='none'")])
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        PEG(4, **options)
    with pytest.raises(ValueError, match='embed_dims=0'):
        PEG(0)


def test_wrong_number_of_tokens_is_named():
    with pytest.raises(ValueError, match=r'x has 12 tokens, but hw_shape=\(3, 3\)'):
        PEG(2)(torch.zeros(1, 12, 2), (3, 3))
