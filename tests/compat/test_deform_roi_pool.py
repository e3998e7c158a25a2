"""Deformable RoI pooling: RoIAlign of moved bins, against a loop over samples."""
import math

import numpy as np
import pytest
import torch

import mmposenc  # noqa: F401  (before mmcv's operators)

ops = pytest.importorskip('mmcv.ops')


def bilinear(plane, y, x):
    """Held at the edge of the map, zero a cell beyond it."""
    height, width = plane.shape
    if not (-1 <= y <= height and -1 <= x <= width):
        return 0.0
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    return ((top + 1 - y) * ((left + 1 - x) * plane[top, left] + (x - left) * plane[top, right])
            + (y - top) * ((left + 1 - x) * plane[bottom, left]
                           + (x - left) * plane[bottom, right]))


def loop(x, rois, offset, size, scale, ratio, gamma):
    x, rois, offset = (each.detach().numpy() for each in (x, rois, offset))
    out = np.zeros((len(rois), x.shape[1], *size))
    for k, roi in enumerate(rois):
        left, top, right, bottom = roi[1:] * scale - 0.5
        step = (bottom - top) / size[0], (right - left) / size[1]
        count = [ratio or math.ceil(side) for side in step]
        for i, j in np.ndindex(*size):
            start = (top + gamma * (bottom - top) * offset[k, 1, i, j] + i * step[0],
                     left + gamma * (right - left) * offset[k, 0, i, j] + j * step[1])
            for c in range(x.shape[1]):
                total = sum(bilinear(x[int(roi[0]), c], start[0] + (r + 0.5) * step[0] / count[0],
                                     start[1] + (s + 0.5) * step[1] / count[1])
                            for r in range(count[0]) for s in range(count[1]))
                out[k, c, i, j] = total / max(count[0] * count[1], 1)
    return torch.from_numpy(out)


def case(hw):
    torch.manual_seed(0)
    x = torch.randn(2, 3, *hw, dtype=torch.float64)
    centre = torch.rand(5, 2, dtype=torch.float64) * torch.tensor([hw[1] * 4, hw[0] * 4])
    extent = torch.rand(5, 2, dtype=torch.float64) * 16 + 1
    rois = torch.cat([torch.randint(2, (5, 1)).double(), centre - extent / 2, centre + extent / 2],
                     1)
    return x, rois, torch.randn(5, 2, 3, 2, dtype=torch.float64)


@pytest.mark.parametrize('hw', [(6, 7), (1, 5), (4, 1)])
@pytest.mark.parametrize('ratio', [0, 2])
def test_equals_the_definition(hw, ratio):
    x, rois, offset = case(hw)
    for moves in (offset, 20 * offset, torch.zeros_like(offset)):
        found = ops.deform_roi_pool(x, rois, moves, (3, 2), 0.25, ratio, 0.3)
        torch.testing.assert_close(found, loop(x, rois, moves, (3, 2), 0.25, ratio, 0.3))
    still = ops.deform_roi_pool(x, rois, None, (3, 2), 0.25, ratio, 0.3)
    torch.testing.assert_close(found, still)
    torch.testing.assert_close(still, ops.roi_align(x, rois, (3, 2), 0.25, ratio, 'avg', True))
    assert ops.deform_roi_pool(x, rois[:0], offset[:0], (3, 2)).shape == (0, 3, 3, 2)


@pytest.mark.parametrize('ratio', [0, 2])
def test_gradient(ratio):
    x, rois, offset = case((6, 7))
    x.requires_grad_(), offset.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x, offset: ops.deform_roi_pool(x, rois, offset, (3, 2), 0.25, ratio, 0.3),
        (x, offset))
    assert torch.autograd.gradcheck(
        lambda x: ops.deform_roi_pool(x, rois, None, (3, 2), 0.25, ratio, 0.3), x)


def test_packs_train_and_wrong_moves_are_an_error():
    x, rois, offset = case((6, 7))
    for pack in (ops.DeformRoIPoolPack, ops.ModulatedDeformRoIPoolPack):
        layer = pack((3, 2), 3, 8, 0.25, 2).double()
        layer(x, rois).sum().backward()
        assert layer.offset_fc[-1].weight.grad.any()
    with pytest.raises(ValueError, match=r'offset must have shape \(5, 2, 3, 2\), got'):
        ops.deform_roi_pool(x, rois, offset[:, :, :2], (3, 2))
