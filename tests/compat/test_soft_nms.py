import math

import numpy as np
import pytest
import torch
from compat_checks import DTYPES, disjoint_boxes, iou_by_hand, random_boxes

from mmposenc.compat.nms import nms
from mmposenc.compat.soft_nms import close_gaps, softnms


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
@pytest.mark.parametrize('method', [0, 1, 2])
@pytest.mark.parametrize('min_score', [0.0, 0.001, 0.3])
@pytest.mark.parametrize('tied', [False, True])
@pytest.mark.parametrize('offset', [0, 1])
def test_equals_naive_loop(dtype, method, min_score, tied, offset):
    boxes, scores = random_boxes(80, dtype, seed=method, rounded=tied)
    if tied:
        scores = (scores * 5).round() / 5
    dets = torch.full((80, 5), -7, dtype=dtype)
    kept = softnms(boxes, scores, dets, 0.3, 0.5, min_score, method, offset)
    expected, indices = naive_softnms(boxes, scores, 0.3, 0.5, min_score, method, offset)
    assert kept.tolist() == indices
    torch.testing.assert_close(dets[:len(kept)], expected, rtol=1e-6, atol=1e-7)
    assert bool((dets[len(kept):] == -7).all())


@pytest.mark.parametrize('method', [0, 1, 2])
def test_two_empty_boxes(method):
    boxes = torch.tensor([[1., 1, 1, 1], [1, 1, 1, 1], [0, 0, 2, 2], [1, 1, 1, 1]])
    scores, dets = torch.tensor([0.6, 0.8, 0.9, 0.7]), torch.zeros(4, 5)
    kept = softnms(boxes, scores, dets, 0.3, 0.5, 0.01, method, 0)
    expected, indices = naive_softnms(boxes, scores, 0.3, 0.5, 0.01, method, 0)
    assert kept.tolist() == indices
    torch.testing.assert_close(dets, expected, equal_nan=True)


@pytest.mark.parametrize('dtype', DTYPES)
def test_empty_one_and_identical_boxes(dtype):
    empty = torch.zeros(0, 4, dtype=dtype)
    assert softnms(empty, empty[:, 0], torch.zeros(0, 5), 0.3, 0.5, 0.1, 1, 0).tolist() == []
    box = torch.tensor([[1, 2, 3, 4]], dtype=dtype)
    dets = torch.zeros(1, 5, dtype=dtype)
    assert softnms(box, box[:, 0], dets, 0.3, 0.5, 0.1, 1, 0).tolist() == [0]
    assert dets.tolist() == [[1, 2, 3, 4, 1]]
    scores = torch.tensor([0.5, 0.9, 0.7], dtype=dtype)
    dets = torch.zeros(3, 5, dtype=dtype)
    kept = softnms(box.expand(3, 4), scores, dets, 0.3, 0.5, 0.0, 2, 0)
    assert kept.tolist() == [1, 2, 0]
    decayed = [0.9, 0.7 * math.exp(-2), 0.5 * math.exp(-4)]
    torch.testing.assert_close(dets[:, 4], torch.tensor(decayed, dtype=dtype))


def test_close_gaps_fills_from_the_right():
    table = np.arange(6)[None].copy()
    stays = np.array([True, False, False, True, False, True])
    assert close_gaps(table, stays).tolist() == [[0, 5, 3]]


def test_nan_scores_and_unknown_methods_are_errors():
    boxes, scores = random_boxes(5)
    with pytest.raises(ValueError, match='method must be 0, 1 or 2 .*, got 3'):
        softnms(boxes, scores, torch.zeros(5, 5), 0.3, 0.5, 0.1, 3, 0)
    scores[:2] = torch.nan
    with pytest.raises(ValueError, match='scores must not be NaN, got 2 NaN of 5 scores'):
        softnms(boxes, scores, torch.zeros(5, 5), 0.3, 0.5, 0.1, 1, 0)


def test_10000_boxes_without_decay_are_plain_nms():
    boxes, scores = random_boxes(10000, size=400.0)
    kept = softnms(boxes, scores, torch.zeros(10000, 5), 0.5, 0.5, 1e-9, 0, 0)
    assert torch.equal(kept, nms(boxes, scores, 0.5, 0))


def test_10000_disjoint_boxes_keep_their_scores():
    scores = torch.rand(10000, generator=torch.Generator().manual_seed(0))
    dets = torch.zeros(10000, 5)
    kept = softnms(disjoint_boxes(10000), scores, dets, 0.3, 0.5, 0.0, 2, 0)
    assert torch.equal(dets[:, 4], scores.sort(descending=True).values)
    assert torch.equal(scores[kept], dets[:, 4])


@pytest.mark.parametrize('method', ['naive', 'linear', 'gaussian'])
def test_mmcv_soft_nms_uses_it(method):
    pytest.importorskip('mmcv')
    from mmcv.ops import soft_nms
    boxes, scores = random_boxes(60)
    dets, kept = soft_nms(boxes, scores, 0.3, 0.5, 0.05, method)
    number = ['naive', 'linear', 'gaussian'].index(method)
    expected, indices = naive_softnms(boxes, scores, 0.3, 0.5, 0.05, number, 0)
    assert kept.tolist() == indices
    torch.testing.assert_close(dets, expected)
