"""Suppression of boxes, greedy and soft, against loops over single ones."""
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.operator_loops import (
    DEVICES,
    DTYPES,
    disjoint_boxes,
    iou_by_hand,
    naive_nms,
    random_boxes,
)

from mmposenc.compat import nms as module
from mmposenc.compat.nms import nms, softnms


def naive_softnms(boxes, scores, iou_threshold, sigma, min_score, method, offset):
    """Box by box as the compiled kernel goes: swap the best to the front, decay the others,
    replace a dropped one by the last. Returns rows x1, y1, x2, y2, score and indices."""
    one = boxes.numpy().dtype.type(1)
    threshold, sigma, min_score = (one * x for x in (iou_threshold, sigma, min_score))
    rows = [[boxes.numpy()[i], scores.numpy()[i], i] for i in range(len(scores))]
    first = 0
    while first < len(rows):
        best = first
        for i in range(first + 1, len(rows)):
            if rows[best][1] < rows[i][1]:
                best = i
        rows[first], rows[best] = rows[best], rows[first]
        i = first + 1
        while i < len(rows):
            iou = iou_by_hand(rows[first][0], rows[i][0], offset)
            weight = one
            if method < 2 and iou >= threshold:
                weight = one - iou if method == 1 else one * 0
            elif method == 2:
                weight = np.exp(-(iou * iou) / sigma)
            rows[i] = [rows[i][0], rows[i][1] * weight, rows[i][2]]
            if rows[i][1] < min_score:
                rows[i] = rows[-1]
                rows.pop()
            else:
                i += 1
        first += 1
    dets = [[*box, score] for box, score, _ in rows]
    return torch.tensor(np.array(dets)), [index for _, _, index in rows]


@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize('rounded', [False, True])
@pytest.mark.parametrize('iou_threshold', [0.0, 0.3, 0.7, 1.0])
def test_greedy_choices_are_those_of_the_loop(dtype, rounded, iou_threshold, monkeypatch):
    """In one block of boxes and in many, on every device there is."""
    boxes, scores = random_boxes(100, dtype, rounded=rounded)
    expected = [naive_nms(boxes, scores, iou_threshold, offset) for offset in (0, 1)]
    for device in DEVICES:
        for block in (module.BLOCK, 7):
            monkeypatch.setattr(module, 'BLOCK', block)
            found = [nms(boxes.to(device), scores.to(device), iou_threshold, offset)
                     for offset in (0, 1)]
            assert [each.tolist() for each in found] == expected
            assert found[0].device.type == device and found[0].dtype == torch.long


@pytest.mark.parametrize('boxes, iou_threshold, offset, expected', [
    ([[0, 0, 2, 2], [0, 0, 1, 2]], 0.5, 0, [0, 1]),  # IoU 1/2: dropped where it is more
    ([[0, 0, 2, 2], [0, 0, 1, 2]], 0.49, 0, [0]),
    ([[0, 0, 1, 0], [1, 0, 2, 0]], 0.3, 1, [0]),  # 2 pixels each, one in common: 1/3
    ([[0, 0, 1, 0], [1, 0, 2, 0]], 0.3, 0, [0, 1]),
    ([[1, 1, 1, 1], [1, 1, 1, 1], [0, 0, 2, 2]], 0.0, 0, [0, 1, 2]),  # of no area
    ([[1, 2, 3, 4]] * 10000, 0.5, 0, [0]),
    (disjoint_boxes(10000).tolist(), 0.5, 0, list(range(10000))),
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


def soft(boxes, scores, dets, method=1):
    return softnms(boxes, scores, dets, 0.3, 0.5, 0.1, method, 0)


@pytest.mark.parametrize('call', [
    lambda boxes, scores: nms(boxes, scores, 0.5, 0),
    lambda boxes, scores: soft(boxes, scores, torch.zeros(5, 5))])
def test_nan_scores_are_an_error(call):
    boxes, scores = random_boxes(5)
    scores[3] = torch.nan
    with pytest.raises(ValueError, match='scores must not be NaN, got 1 NaN of 5 scores'):
        call(boxes, scores)


@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize('method', [0, 1, 2])
@pytest.mark.parametrize('min_score, offset', [(0.0, 1), (0.001, 0), (0.3, 0)])
@pytest.mark.parametrize('tied', [False, True])
def test_soft_suppression_equals_its_loop(dtype, method, min_score, offset, tied):
    boxes, scores = random_boxes(80, dtype, seed=method, rounded=tied)
    boxes[:2], boxes[2] = boxes[3], boxes[3, 0]  # three alike, and one of no area
    boxes[4:6] = torch.tensor([[0, 0, 2, 2], [0, 0, 1, 2]])  # IoU 1/2, the threshold
    if tied:
        scores = (scores * 5).round() / 5
    dets = torch.full((80, 5), -7, dtype=dtype)
    kept = softnms(boxes, scores, dets, 0.5, 0.5, min_score, method, offset)
    expected, indices = naive_softnms(boxes, scores, 0.5, 0.5, min_score, method, offset)
    assert kept.tolist() == indices
    torch.testing.assert_close(dets[:len(kept)], expected, rtol=1e-6, atol=1e-7, equal_nan=True)
    assert bool((dets[len(kept):] == -7).all())


def test_soft_suppression_of_two_boxes_of_no_area_of_none_and_by_an_unknown_method():
    boxes, scores = torch.tensor([[1., 1, 1, 1]] * 3 + [[0, 0, 2, 2]]), torch.tensor(
        [.6, .8, .7, .9])
    for method in (0, 1, 2):
        dets = torch.zeros(4, 5)
        kept = softnms(boxes, scores, dets, 0.3, 0.5, 0.01, method, 0)
        expected, indices = naive_softnms(boxes, scores, 0.3, 0.5, 0.01, method, 0)
        assert kept.tolist() == indices
        torch.testing.assert_close(dets, expected, equal_nan=True)
    assert soft(boxes[:0], scores[:0], torch.zeros(0, 5)).tolist() == []
    with pytest.raises(ValueError, match='method must be 0, 1 or 2 .*, got 3'):
        soft(boxes, scores, torch.zeros(4, 5), 3)


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
    for number, method in enumerate(('naive', 'linear', 'gaussian')):
        dets, kept = ops.soft_nms(boxes, scores, 0.3, 0.5, 0.05, method)
        expected, indices = naive_softnms(boxes, scores, 0.3, 0.5, 0.05, number, 0)
        assert kept.tolist() == indices
        torch.testing.assert_close(dets, expected)
