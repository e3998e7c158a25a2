import numpy as np
import pytest
import torch
from compat_checks import DEVICES, DTYPES, disjoint_boxes, random_boxes
from compat_loops import naive_nms

from mmposenc.compat import nms as module
from mmposenc.compat.nms import nms


@pytest.mark.parametrize('device', DEVICES)
@pytest.mark.parametrize('dtype', DTYPES)
@pytest.mark.parametrize('offset', [0, 1])
@pytest.mark.parametrize('rounded', [False, True])
@pytest.mark.parametrize('iou_threshold', [0.0, 0.3, 0.5, 0.7, 1.0])
def test_equals_naive_loop(device, dtype, offset, rounded, iou_threshold):
    boxes, scores = random_boxes(150, dtype, rounded=rounded)
    kept = nms(boxes.to(device), scores.to(device), iou_threshold, offset)
    assert kept.device.type == device and kept.dtype == torch.long
    assert kept.tolist() == naive_nms(boxes, scores, iou_threshold, offset)


@pytest.mark.parametrize('device', DEVICES)
def test_more_than_one_block_equals_naive_loop(device, monkeypatch):
    monkeypatch.setattr(module, 'BLOCK', 7)
    boxes, scores = random_boxes(150)
    kept = nms(boxes.to(device), scores.to(device), 0.4, 0)
    assert kept.tolist() == naive_nms(boxes, scores, 0.4, 0)


def test_drops_only_what_overlaps_by_strictly_more():
    boxes = torch.tensor([[0., 0, 2, 2], [0, 0, 1, 2]])  # IoU 1/2
    scores = torch.tensor([0.9, 0.8])
    assert nms(boxes, scores, 0.5, 0).tolist() == [0, 1]
    assert nms(boxes, scores, 0.49, 0).tolist() == [0]


def test_offset_counts_pixels():
    boxes = torch.tensor([[0., 0, 1, 0], [1, 0, 2, 0]])  # 2 pixels each, one in common: 1/3
    scores = torch.tensor([0.9, 0.8])
    assert nms(boxes, scores, 0.3, 1).tolist() == [0]
    assert nms(boxes, scores, 0.3, 0).tolist() == [0, 1]


@pytest.mark.parametrize('device', DEVICES)
@pytest.mark.parametrize('dtype', DTYPES)
def test_empty_one_and_identical_boxes(device, dtype):
    empty = torch.zeros(0, 4, dtype=dtype, device=device)
    assert nms(empty, empty[:, 0], 0.5, 0).shape == (0,)
    box = torch.tensor([[1, 2, 3, 4]], dtype=dtype, device=device)
    assert nms(box, box[:, 0], 0.5, 0).tolist() == [0]
    scores = torch.full((10000,), 0.5, dtype=dtype, device=device)
    assert nms(box.expand(10000, 4), scores, 0.5, 0).tolist() == [0]
    scores[1234] = 0.6
    assert nms(box.expand(10000, 4), scores, 0.5, 0).tolist() == [1234]


def test_two_empty_boxes_do_not_overlap():
    boxes = torch.tensor([[1., 1, 1, 1], [1, 1, 1, 1], [0, 0, 2, 2]])
    assert nms(boxes, torch.tensor([0.9, 0.8, 0.7]), 0.0, 0).tolist() == [0, 1, 2]


def test_equal_scores_keep_their_order():
    boxes = disjoint_boxes(1000)
    assert nms(boxes, torch.full((1000,), 0.5), 0.5, 0).tolist() == list(range(1000))


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(dtype):
    boxes, scores = random_boxes(100)
    boxes = boxes.to(dtype)
    assert torch.equal(nms(boxes, scores, 0.4, 0), nms(boxes.float(), scores, 0.4, 0))


def test_torchvisions_kernel_is_taken_where_it_has_loaded(monkeypatch):
    """On an accelerator, and for boxes without an offset: that kernel knows no other."""
    from types import SimpleNamespace

    from mmposenc.compat import nms as module
    from mmposenc.compat.torchvision_ops import has_kernel
    boxes, scores = random_boxes(5)
    assert not has_kernel('nms', boxes)  # a CPU's ties are mmcv's
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


@pytest.mark.parametrize('device', DEVICES)
def test_10000_boxes_are_the_greedy_choice_in_few_steps(device, monkeypatch):
    """Kept boxes do not overlap, and every other one overlaps a better kept one: only the greedy
    choice has both properties."""
    calls = []

    def counted(*args):
        calls.append(args)
        return overlaps(*args)

    overlaps = module.overlaps
    monkeypatch.setattr(module, 'overlaps', counted)
    boxes, scores = (x.to(device) for x in random_boxes(10000, size=1000.0))
    kept = nms(boxes, scores, 0.5, 0)
    assert len(calls) <= 2 * -(-10000 // module.BLOCK)
    assert bool((scores[kept].diff() < 0).all())
    assert 1000 < len(kept) < 9000

    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1, keepdim=True)
    table = torch.cat([boxes, areas], 1).T.cpu().numpy()
    dropped = torch.ones(10000, dtype=torch.bool, device=device)
    dropped[kept] = False
    explained = torch.zeros_like(dropped)
    for part in kept.split(1000):
        over = torch.from_numpy(overlaps(table[:, part.cpu()], table, 0.5, 0)).to(device)
        over[torch.arange(len(part)), part] = False
        assert not over[:, ~dropped].any()
        explained |= (over & (scores[part][:, None] > scores)).any(0)
    assert torch.equal(explained, dropped)


def test_10000_disjoint_boxes_are_all_kept():
    scores = torch.rand(10000, generator=torch.Generator().manual_seed(0))
    kept = nms(disjoint_boxes(10000), scores, 0.5, 0)
    assert torch.equal(kept, scores.argsort(descending=True, stable=True))


def test_mmcv_nms_and_batched_nms_use_it():
    pytest.importorskip('mmcv')
    from mmcv.ops import batched_nms
    from mmcv.ops import nms as mmcv_nms
    boxes, scores = random_boxes(200)
    dets, kept = mmcv_nms(boxes, scores, 0.5, score_threshold=0.3, max_num=20)
    above = [i for i in naive_nms(boxes, scores, 0.5, 0) if scores[i] > 0.3][:20]
    assert kept.tolist() == above
    assert torch.equal(dets, torch.cat([boxes[above], scores[above, None]], 1))

    labels = torch.arange(200) % 3
    dets, kept = batched_nms(boxes, scores, labels, dict(type='nms', iou_threshold=0.5))
    by_class = []
    for label in range(3):
        inds = (labels == label).nonzero()[:, 0]
        by_class += inds[naive_nms(boxes[inds], scores[inds], 0.5, 0)].tolist()
    assert kept.tolist() == sorted(by_class, key=lambda i: -scores[i].item())


def test_mmcv_nms_takes_numpy():
    pytest.importorskip('mmcv')
    from mmcv.ops import nms as mmcv_nms
    boxes, scores = (x.numpy() for x in random_boxes(50))
    dets, kept = mmcv_nms(boxes, scores, 0.5)
    assert isinstance(kept, np.ndarray)
    assert kept.tolist() == naive_nms(*(torch.from_numpy(x) for x in (boxes, scores)), 0.5, 0)
