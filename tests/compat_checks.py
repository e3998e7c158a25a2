"""What the tests of mmposenc.operators share: devices, random boxes, and an IoU by hand."""
import numpy as np
import torch

DEVICES = ['cpu', *['cuda'] * torch.cuda.is_available()]
DTYPES = [torch.float32, torch.float64]


def random_boxes(count, dtype=torch.float32, seed=0, size=200.0, rounded=False):
    """Boxes (count, 4) that overlap a lot, and distinct scores (count,)."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.rand(count, 2, generator=generator, dtype=dtype) * size
    extents = torch.rand(count, 2, generator=generator, dtype=dtype) * 60 + 1
    boxes = torch.cat([centres - extents / 2, centres + extents / 2], 1)
    scores = (torch.randperm(count, generator=generator) + 1).to(dtype) / (count + 1)
    return boxes.round() if rounded else boxes, scores


def disjoint_boxes(count, dtype=torch.float32):
    """Boxes in a row that do not touch."""
    left = torch.arange(count, dtype=dtype) * 3
    return torch.stack([left, torch.zeros_like(left), left + 2, torch.ones_like(left)], 1)


def iou_by_hand(a, b, offset=0):
    """IoU of two boxes of NumPy scalars, operation by operation; NaN for two empty ones."""
    area_a = (a[2] - a[0] + offset) * (a[3] - a[1] + offset)
    area_b = (b[2] - b[0] + offset) * (b[3] - b[1] + offset)
    width = max(a[0] * 0, min(a[2], b[2]) - max(a[0], b[0]) + offset)
    height = max(a[0] * 0, min(a[3], b[3]) - max(a[1], b[1]) + offset)
    inter = width * height
    with np.errstate(invalid='ignore', divide='ignore'):
        return inter / (area_a + area_b - inter)
