import pytest
import torch
from compat_checks import DEVICES, DTYPES

from mmposenc.operators.deform_attn import ms_deform_attn_backward, ms_deform_attn_forward

pytest.importorskip('mmcv')

SHAPES = [(3, 5), (1, 4), (2, 1)]


def naive_attention(value, locations, weights):
    """Sum over levels and points of weight times the bilinear sample, zero outside the map."""
    batch, queries, heads, levels, points, _ = locations.shape
    output = value.new_zeros(batch, queries, heads, value.size(-1))
    starts = [0, 15, 19]
    for b, q, h, level, p in torch.cartesian_prod(*map(torch.arange, locations.shape[:-1])):
        height, width = SHAPES[level]
        x, y = (locations[b, q, h, level, p] * torch.tensor([width, height]) - 0.5).tolist()
        for row in (int(y // 1), int(y // 1) + 1):
            for column in (int(x // 1), int(x // 1) + 1):
                if 0 <= row < height and 0 <= column < width:
                    share = (1 - abs(y - row)) * (1 - abs(x - column))
                    key = starts[level] + row * width + column
                    output[b, q, h] += weights[b, q, h, level, p] * share * value[b, key, h]
    return output.flatten(2)


def random_case(dtype, device='cpu'):
    generator = torch.Generator().manual_seed(0)
    value = torch.randn(2, 21, 2, 3, generator=generator, dtype=dtype)
    locations = torch.rand(2, 4, 2, 3, 2, 2, generator=generator, dtype=dtype) * 1.4 - 0.2
    weights = torch.rand(2, 4, 2, 3, 2, generator=generator, dtype=dtype)
    shapes = torch.tensor(SHAPES)
    starts = torch.tensor([0, 15, 19])
    return tuple(x.to(device) for x in (value, shapes, starts, locations, weights))


@pytest.mark.parametrize('device', DEVICES)
@pytest.mark.parametrize('dtype', DTYPES)
def test_equals_naive_loop(device, dtype):
    args = random_case(dtype)
    actual = ms_deform_attn_forward(*(x.to(device) for x in args), im2col_step=64)
    expected = naive_attention(args[0], args[3], args[4])
    torch.testing.assert_close(actual.cpu(), expected, atol=1e-5 if dtype == torch.float32
                               else 1e-12, rtol=1e-5)
    none = ms_deform_attn_forward(*args[:3], args[3][:, :0], args[4][:, :0], 64)
    assert none.shape == (2, 0, 6)


@pytest.mark.parametrize('device', DEVICES)
def test_gradients_through_mmcv(device):
    """The function mmcv calls on a GPU, with this in the place of its kernels; its buffers need not
    be zero."""
    from mmcv.ops.multi_scale_deform_attn import MultiScaleDeformableAttnFunction
    value, shapes, starts, locations, weights = random_case(torch.float64, device)
    inputs = tuple(x.requires_grad_() for x in (value, locations, weights))

    def attention(value, locations, weights):
        return MultiScaleDeformableAttnFunction.apply(value, shapes, starts, locations, weights,
                                                      64)
    assert torch.autograd.gradcheck(attention, inputs)
    output = attention(*inputs)
    grad = torch.randn_like(output)
    buffers = [torch.full_like(x, 7) for x in inputs]
    with torch.no_grad():
        ms_deform_attn_backward(value, shapes, starts, locations, weights, grad, *buffers,
                                im2col_step=64)
    for buffer, wanted in zip(buffers, torch.autograd.grad(output, inputs, grad), strict=True):
        torch.testing.assert_close(buffer, wanted)
