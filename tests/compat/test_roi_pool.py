"""RoI pooling against a loop over cells, as mmcv's kernel has its bins."""
import math

import numpy as np
import pytest
import torch

import mmposenc  # noqa: F401  (before mmcv's operators)
from mmposenc.compat import roi_pool as module

ops = pytest.importorskip('mmcv.ops')
NUMBER = {torch.float32: np.float32, torch.float64: np.float64}


def loop(x, rois, size, scale):
    """Output and where it was found, bin by bin."""
    number = NUMBER[x.dtype]
    out = torch.zeros(len(rois), x.shape[1], *size, dtype=x.dtype)
    found = torch.full(out.shape, -1)
    for k, roi in enumerate(rois.tolist()):
        x1, y1 = (number(v) * number(scale) for v in roi[1:3])
        x2, y2 = ((number(v) + number(1)) * number(scale) for v in roi[3:])
        step_x, step_y = (x2 - x1) / number(size[1]), (y2 - y1) / number(size[0])
        if step_x <= 0 or step_y <= 0:
            continue
        for i in range(size[0]):
            for j in range(size[1]):
                rows = range(max(math.floor(number(i) * step_y + y1), 0),
                             min(math.ceil(number(i + 1) * step_y + y1), x.shape[2]))
                cols = range(max(math.floor(number(j) * step_x + x1), 0),
                             min(math.ceil(number(j + 1) * step_x + x1), x.shape[3]))
                for c in range(x.shape[1]):
                    cells = [(-float(x[int(roi[0]), c, r, s]), r * x.shape[3] + s)
                             for r in rows for s in cols]
                    if cells:
                        best = min(cells)
                        out[k, c, i, j], found[k, c, i, j] = -best[0], best[1]
    return out, found


def regions(count, hw, dtype):
    """Some beyond the map, one outside of it, and one without area."""
    torch.manual_seed(0)
    span = torch.tensor([hw[1], hw[0]], dtype=dtype) * 4
    centre, extent = torch.rand(2, count, 2, dtype=dtype) * span
    rois = torch.cat([torch.randint(2, (count, 1)).to(dtype), centre - extent / 2,
                      centre + extent / 2], 1)
    rois[0, 1:] += 1000
    rois[1, 3] = rois[1, 1] - 1
    return rois


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('hw', [(6, 7), (1, 5), (4, 1)])
def test_equals_the_definition(dtype, hw, monkeypatch):
    x, rois = torch.randn(2, 3, *hw, dtype=dtype).round(), regions(8, hw, dtype)  # has equal cells
    expected, found = loop(x, rois, (3, 2), 0.25)
    assert torch.equal(ops.roi_pool(x, rois, (3, 2), 0.25), expected)
    assert torch.equal(ops.roi_pool(x.mT.contiguous().mT, rois, (3, 2), 0.25), expected)
    bins = module.mmcv_bins(rois, 0.25, (3, 2), hw)
    assert torch.equal(module.largest(x, bins)[1], found.int())
    monkeypatch.setattr(module, 'MAX_VALUES', 1)
    assert torch.equal(ops.roi_pool(x, rois, (3, 2), 0.25), expected)
    assert ops.roi_pool(x, rois[:0], (3, 2), 0.25).shape == (0, 3, 3, 2)


def test_gradient():
    rois = regions(6, (5, 6), torch.float64)
    x = torch.randperm(120).view(2, 2, 5, 6).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: ops.roi_pool(x, rois, (3, 2), 0.25), x)


@pytest.mark.parametrize('roi, message', [
    ([2, 0, 0, 4, 4], r'rois\[:, 0\] must be image indices in \[0, 2\), got 2.0 to 2.0'),
    ([0, 0, math.nan, 4, 4], 'rois must be finite, got')])
def test_bad_regions_are_errors(roi, message):
    with pytest.raises(ValueError, match=message):
        ops.roi_pool(torch.randn(2, 3, 4, 5), torch.tensor([roi], dtype=torch.float32), (2, 2))
