"""Operators as loops written from their definitions, and cases for them."""
import itertools
import math

import numpy as np
import torch
from compat_checks import iou_by_hand

from mmposenc.operators.deform_conv import Sizes

NUMBER = {torch.float32: np.float32, torch.float64: np.float64}
ONE = Sizes((1, 1), (1, 1), (1, 1), 1, 1)
CASES = [((4, 5), ONE),
         ((5, 4), Sizes((2, 1), (0, 1), (1, 2), 2, 2)),
         ((1, 3), Sizes((1, 1), (1, 1), (1, 1), 1, 4))]


def read(plane, row, col):
    """Bilinear, zero outside."""
    total = 0.0
    for r, c in itertools.product((math.floor(row), math.floor(row) + 1),
                                  (math.floor(col), math.floor(col) + 1)):
        if 0 <= r < plane.shape[0] and 0 <= c < plane.shape[1]:
            total += (1 - abs(row - r)) * (1 - abs(col - c)) * float(plane[r, c])
    return total


def deform_loop(x, offset, mask, weight, sizes):
    """The definition, one product at a time."""
    stride, padding, dilation, groups, parts = sizes
    batch, channels = x.shape[:2]
    outputs, inside, kh, kw = weight.shape
    out = torch.zeros(batch, outputs, *offset.shape[2:], dtype=x.dtype)
    steps = offset.view(batch, parts, kh, kw, 2, *offset.shape[2:])
    factors = mask.view(batch, parts, kh, kw, *offset.shape[2:])
    for b, o, c, i, j in itertools.product(range(batch), range(outputs), range(inside), range(kh),
                                           range(kw)):
        channel = o // (outputs // groups) * inside + c
        part = channel // (channels // parts)
        for r, s in itertools.product(range(out.shape[2]), range(out.shape[3])):
            row = r * stride[0] - padding[0] + i * dilation[0] + steps[b, part, i, j, 0, r, s]
            col = s * stride[1] - padding[1] + j * dilation[1] + steps[b, part, i, j, 1, r, s]
            value = read(x[b, channel], float(row), float(col))
            out[b, o, r, s] += weight[o, c, i, j] * factors[b, part, i, j, r, s] * value
    return out


def deform_case(hw, sizes, batch=2, dtype=torch.float64, outputs=6):
    """A map, steps, factors and a weight."""
    torch.manual_seed(0)
    x = torch.randn(batch, 4, *hw, dtype=dtype)
    weight = torch.randn(outputs, 4 // sizes.groups, 3, 3, dtype=dtype)
    rows, cols = sizes.out_hw(x, weight)
    steps = 2 * torch.randn(batch, sizes.deform_groups * 18, rows, cols, dtype=dtype)
    return x, steps, torch.rand(batch, sizes.deform_groups * 9, rows, cols, dtype=dtype), weight


def greedy(scores, joins):
    """The definition: the best one left takes those that join it, which leaves groups of each."""
    left, groups = sorted(range(len(scores)), key=lambda i: -scores[i].item()), []
    while left:
        best, *left = left
        groups.append([best, *(i for i in left if joins(best, i))])
        left = [i for i in left if i not in groups[-1]]
    return groups


def naive_nms(boxes, scores, iou_threshold, offset):
    """The best boxes of groups that overlap them by more."""
    boxes, threshold = boxes.numpy(), boxes.numpy().dtype.type(iou_threshold)
    return [best for best, *_ in greedy(scores, lambda i, j: iou_by_hand(
        boxes[i], boxes[j], offset) > threshold)]


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


def sample_points(roi, size, scale, sampling_ratio, aligned, dtype, moves=None):
    """The points of every bin, which may be moved in y and x: a list of (y, x) for each."""
    number = NUMBER[dtype]
    half = number(0.5 if aligned else 0)
    x1, y1, x2, y2 = (number(float(v)) * number(scale) - half for v in roi[1:])
    height, width = y2 - y1, x2 - x1
    if not aligned:
        height, width = max(height, number(1)), max(width, number(1))
    bin_h, bin_w = height / number(size[0]), width / number(size[1])
    rows = sampling_ratio or math.ceil(np.float32(bin_h))
    columns = sampling_ratio or math.ceil(np.float32(bin_w))
    moves = np.zeros((2, *size), dtype=number) if moves is None else moves.numpy()
    return [[(y1 + moves[0, i, j] + number(i) * bin_h + number(r + .5) * bin_h / number(rows),
              x1 + moves[1, i, j] + number(j) * bin_w + number(c + .5) * bin_w / number(columns))
             for r in range(rows) for c in range(columns)]
            for i in range(size[0]) for j in range(size[1])]


def naive_roi_align(input, rois, size, scale, sampling_ratio, aligned, moves=None):
    """(K, C, h, w): means of the samples of each bin, which may be moved (K, 2, h, w)."""
    output = torch.zeros(len(rois), input.size(1), *size, dtype=input.dtype)
    for k, roi in enumerate(rois):
        points = sample_points(roi, size, scale, sampling_ratio, aligned, input.dtype,
                               None if moves is None else moves[k])
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
