"""Suppression of boxes, against loops over single ones."""
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from mmposenc.compat import nms as module
from mmposenc.compat.nms import nms


def random_boxes(count, dtype=torch.float32, rounded=False):
    """Boxes (count, 4) that overlap a lot, and distinct scores (count,)."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.rand(count, 2, generator=generator, dtype=dtype) * 200
    extents = torch.rand(count, 2, generator=generator, dtype=dtype) * 60 + 1
    boxes = torch.cat([centres - extents / 2, centres + extents / 2], 1)
    scores = (torch.randperm(count, generator=generator) + 1).to(dtype) / (count + 1)
    return boxes.round() if rounded else boxes, scores


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


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('rounded', [False, True])
@pytest.mark.parametrize('iou_threshold', [0.0, 0.3, 0.7, 1.0])
def test_greedy_choices_are_those_of_the_loop(dtype, rounded, iou_threshold, monkeypatch):
    """In one block of boxes and in many."""
    boxes, scores = random_boxes(100, dtype, rounded=rounded)
    for offset in (0, 1):
        expected = naive_nms(boxes, scores, iou_threshold, offset)
        for block in (module.BLOCK, 7):
            monkeypatch.setattr(module, 'BLOCK', block)
            assert nms(boxes, scores, iou_threshold, offset).tolist() == expected


@pytest.mark.parametrize('boxes, iou_threshold, offset, expected', [
    ([[0, 0, 2, 2], [0, 0, 1, 2]], 0.5, 0, [0, 1]),  # IoU 1/2: dropped where it is more
    ([[0, 0, 2, 2], [0, 0, 1, 2]], 0.49, 0, [0]),
    ([[0, 0, 1, 0], [1, 0, 2, 0]], 0.3, 1, [0]),  # 2 pixels each, one in common: 1/3
    ([[0, 0, 1, 0], [1, 0, 2, 0]], 0.3, 0, [0, 1]),
    ([[1, 1, 1, 1], [1, 1, 1, 1], [0, 0, 2, 2]], 0.0, 0, [0, 1, 2]),  # of no area
    ([[1, 2, 3, 4]] * 10000, 0.5, 0, [0]),
    ([[3 * i, 0, 3 * i + 2, 1] for i in range(10000)], 0.5, 0, list(range(10000))),  # in a row
    ([], 0.5, 0, [])])
def test_edges_of_overlap_and_equal_scores(boxes, iou_threshold, offset, expected):
    boxes = torch.tensor(boxes, dtype=torch.float32).view(-1, 4)
    assert nms(boxes, torch.full((len(boxes),), 0.5), iou_threshold, offset).tolist() == expected


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(dtype):
    boxes, scores = random_boxes(100)
    boxes = boxes.to(dtype)
    assert torch.equal(nms(boxes, scores, 0.4, 0), nms(boxes.float(), scores, 0.4, 0))


def test_torchvisions_kernel_is_taken_where_it_has_loaded(monkeypatch):
    """On an accelerator, and for boxes without an offset: that kernel knows no other."""
    boxes, scores = random_boxes(5)
    assert not module.has_kernel('nms', boxes)  # a CPU's ties are mmcv's
    expected, calls = nms(boxes, scores, 0.4, 0), []
    kernel = SimpleNamespace(nms=lambda *args: calls.append(args) or expected)
    monkeypatch.setattr(module, 'has_kernel', lambda name, like: name == 'nms')
    monkeypatch.setattr(torch.ops, 'torchvision', kernel)
    assert nms(boxes.double(), scores, 0.4, 0) is expected
    assert calls[0][0].dtype == torch.float32 and calls[0][2] == 0.4
    nms(boxes, scores, 0.4, 1)
    assert len(calls) == 1


def test_nan_scores_are_an_error():
    boxes, scores = random_boxes(5)
    scores[3] = torch.nan
    with pytest.raises(ValueError, match='scores must not be NaN, got 1 NaN of 5 scores'):
        nms(boxes, scores, 0.5, 0)


def test_mmcvs_functions_use_them():
    ops = pytest.importorskip('mmcv.ops')
    boxes, scores = random_boxes(100)
    dets, kept = ops.nms(boxes, scores, 0.5, score_threshold=0.3, max_num=20)
    above = [i for i in naive_nms(boxes, scores, 0.5, 0) if scores[i] > 0.3][:20]
    assert kept.tolist() == above
    assert torch.equal(dets, torch.cat([boxes[above], scores[above, None]], 1))
    assert isinstance(ops.nms(boxes.numpy(), scores.numpy(), 0.5)[1], np.ndarray)
    labels = torch.arange(100) % 3
    dets, kept = ops.batched_nms(boxes, scores, labels, dict(type='nms', iou_threshold=0.5))
    by_class = []
    for label in range(3):
        inds = (labels == label).nonzero()[:, 0]
        by_class += inds[naive_nms(boxes[inds], scores[inds], 0.5, 0)].tolist()
    assert kept.tolist() == sorted(by_class, key=lambda i: -scores[i].item())
