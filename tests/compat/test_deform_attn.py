"""mmcv's function of deformable attention on a GPU, without its kernels."""
import pytest
import torch

from mmposenc.compat.deform_attn import ms_deform_attn_backward

pytest.importorskip('mmcv')


def test_gradients_through_mmcv():
    """The function mmcv calls on a GPU, with this in the place of its kernels; its buffers need not
    be zero."""
    from mmcv.ops.multi_scale_deform_attn import (
        MultiScaleDeformableAttnFunction,
        multi_scale_deformable_attn_pytorch,
    )
    shapes, starts = torch.tensor([(3, 5), (1, 4), (2, 1)]), torch.tensor([0, 15, 19])
    torch.manual_seed(0)
    value = torch.randn(2, 21, 2, 3, dtype=torch.float64)
    locations = torch.rand(2, 4, 2, 3, 2, 2, dtype=torch.float64) * 1.4 - 0.2
    weights = torch.rand(2, 4, 2, 3, 2, dtype=torch.float64)
    inputs = tuple(x.requires_grad_() for x in (value, locations, weights))

    def attention(value, locations, weights):
        return MultiScaleDeformableAttnFunction.apply(value, shapes, starts, locations, weights, 64)
    assert torch.autograd.gradcheck(attention, inputs)
    output = attention(*inputs)
    torch.testing.assert_close(output, multi_scale_deformable_attn_pytorch(
        value, shapes, locations, weights))
    grad = torch.randn_like(output)
    buffers = [torch.full_like(x, 7) for x in inputs]
    with torch.no_grad():
        ms_deform_attn_backward(value, shapes, starts, locations, weights, grad, *buffers,
                                im2col_step=64)
    for buffer, wanted in zip(buffers, torch.autograd.grad(output, inputs, grad), strict=True):
        torch.testing.assert_close(buffer, wanted)
