"""What the tests of mmposenc.compat share: random cases, and operators as loops written from
their definitions."""
import math

import numpy as np
import torch

DEVICES = ['cpu', *['cuda'] * torch.cuda.is_available()]
DTYPES = [torch.float32, torch.float64]
NUMBER = {torch.float32: np.float32, torch.float64: np.float64}


def random_boxes(count, dtype=torch.float32, rounded=False):
    """Boxes (count, 4) that overlap a lot, and distinct scores (count,)."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.rand(count, 2, generator=generator, dtype=dtype) * 200
    extents = torch.rand(count, 2, generator=generator, dtype=dtype) * 60 + 1
    boxes = torch.cat([centres - extents / 2, centres + extents / 2], 1)
    scores = (torch.randperm(count, generator=generator) + 1).to(dtype) / (count + 1)
    return boxes.round() if rounded else boxes, scores


def disjoint_boxes(count):
    """Boxes in a row that do not touch."""
    left = torch.arange(count, dtype=torch.float32) * 3
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


def naive_nms(boxes, scores, iou_threshold, offset):
    """The definition: the best box left drops those that overlap it by more."""
    boxes, threshold = boxes.numpy(), boxes.numpy().dtype.type(iou_threshold)
    left, kept = sorted(range(len(scores)), key=lambda i: -scores[i].item()), []
    while left:
        best, *left = left
        kept.append(best)
        left = [i for i in left if not iou_by_hand(boxes[best], boxes[i], offset) > threshold]
    return kept


def bilinear(image, y, x):
    """(C,) at a point: held at the edge of the map, zero a cell beyond it."""
    channels, height, width = image.shape
    if y < -1 or y > height or x < -1 or x > width:
        return torch.zeros(channels, dtype=image.dtype)
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    return (image[:, top, left] * float((1 - y + top) * (1 - x + left))
            + image[:, top, right] * float((1 - y + top) * (x - left))
            + image[:, bottom, left] * float((y - top) * (1 - x + left))
            + image[:, bottom, right] * float((y - top) * (x - left)))


def sample_points(roi, size, scale, sampling_ratio, aligned, dtype):
    """The points of every bin: a list of (y, x) for each."""
    number = NUMBER[dtype]
    half = number(0.5 if aligned else 0)
    x1, y1, x2, y2 = (number(float(v)) * number(scale) - half for v in roi[1:])
    height, width = y2 - y1, x2 - x1
    if not aligned:
        height, width = max(height, number(1)), max(width, number(1))
    bin_h, bin_w = height / number(size[0]), width / number(size[1])
    rows = sampling_ratio or math.ceil(np.float32(bin_h))
    columns = sampling_ratio or math.ceil(np.float32(bin_w))
    return [[(y1 + number(i) * bin_h + number(r + .5) * bin_h / number(rows),
              x1 + number(j) * bin_w + number(c + .5) * bin_w / number(columns))
             for r in range(rows) for c in range(columns)]
            for i in range(size[0]) for j in range(size[1])]


def naive_roi_align(input, rois, size, scale, sampling_ratio, aligned):
    """(K, C, h, w): means of the samples of each bin."""
    output = torch.zeros(len(rois), input.size(1), *size, dtype=input.dtype)
    for k, roi in enumerate(rois):
        points = sample_points(roi, size, scale, sampling_ratio, aligned, input.dtype)
        for bin, at in enumerate(points):
            values = [bilinear(input[int(roi[0])], y, x) for y, x in at]
            if values:
                output[k, :, bin // size[1], bin % size[1]] = torch.stack(values).mean(0)
    return output


def random_case(seed, dtype, hw, count=5, channels=3):
    """A map of two images, and regions that reach beyond it on every side."""
    generator = torch.Generator().manual_seed(seed)
    input = torch.randn(2, channels, *hw, generator=generator, dtype=dtype)
    image = torch.randint(2, (count, 1), generator=generator).to(dtype)
    span = torch.tensor([hw[1], hw[0]]) * 4.0
    centres = torch.rand(count, 2, generator=generator, dtype=dtype) * span * 1.4 - span * 0.2
    extents = torch.rand(count, 2, generator=generator, dtype=dtype) * span * 0.8
    return input, torch.cat([image, centres - extents / 2, centres + extents / 2], 1)
