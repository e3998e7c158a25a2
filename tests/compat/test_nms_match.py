import pytest
import torch
from compat_checks import DEVICES, DTYPES, disjoint_boxes, iou_by_hand, random_boxes

from mmposenc.compat.nms import nms
from mmposenc.compat.nms_match import nms_match


def naive_match(dets, iou_threshold):
    boxes, threshold = dets.numpy()[:, :4], dets.numpy().dtype.type(iou_threshold)
    left, groups = sorted(range(len(dets)), key=lambda i: -dets[i, 4].item()), []
    while left:
        best, *left = left
        joins = [i for i in left if iou_by_hand(boxes[best], boxes[i]) >= threshold]
        groups.append([best, *joins])
        left = [i for i in left if i not in joins]
    return groups


@pytest.mark.parametrize('device', DEVICES)
@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize('iou_threshold', [0.0, 0.3, 0.7])
def test_equals_naive_loop(device, dtype, iou_threshold):
    boxes, scores = random_boxes(120, dtype, rounded=True)
    dets = torch.cat([boxes, scores[:, None]], 1)
    assert nms_match(dets.to(device), iou_threshold) == naive_match(dets, iou_threshold)


def test_joins_at_exactly_the_threshold():
    dets = torch.tensor([[0., 0, 2, 2, 0.9], [0, 0, 1, 2, 0.8]])
    assert nms_match(dets, 0.5) == [[0, 1]]


@pytest.mark.parametrize('dtype', DTYPES)
def test_empty_one_and_identical_boxes(dtype):
    assert nms_match(torch.zeros(0, 5, dtype=dtype), 0.5) == []
    det = torch.tensor([[1, 2, 3, 4, 0.5]], dtype=dtype)
    assert nms_match(det, 0.5) == [[0]]
    assert nms_match(det.repeat(4, 1), 0.5) == [[0, 1, 2, 3]]


def test_nan_scores_are_an_error():
    with pytest.raises(ValueError, match='scores must not be NaN'):
        nms_match(torch.tensor([[0, 0, 1, 1, torch.nan]]), 0.5)


def test_10000_boxes():
    boxes, scores = random_boxes(10000, size=400.0)
    groups = nms_match(torch.cat([boxes, scores[:, None]], 1), 0.5)
    assert [group[0] for group in groups] == nms(boxes, scores, 0.5, 0).tolist()
    assert sorted(i for group in groups for i in group) == list(range(10000))
    dets = torch.cat([disjoint_boxes(10000), torch.rand(10000, 1)], 1)
    assert [len(group) for group in nms_match(dets, 0.5)] == [1] * 10000


def test_mmcv_nms_match_uses_it():
    pytest.importorskip('mmcv')
    from mmcv.ops import nms_match as mmcv_nms_match
    boxes, scores = random_boxes(60)
    dets = torch.cat([boxes, scores[:, None]], 1)
    assert [group.tolist() for group in mmcv_nms_match(dets, 0.4)] == naive_match(dets, 0.4)
