"""torchvision's operators, where its binary does not load: numbers, autograd, shapes, compiling."""
import pytest
import torch
from helpers.operator_loops import naive_nms, random_boxes, random_case

import mmposenc  # noqa: F401  (before torchvision)

torchvision = pytest.importorskip('torchvision')
ops = torchvision.ops


@pytest.mark.parametrize('iou_threshold', [0.3, 0.5, 0.7])
def test_nms_and_batched_nms(iou_threshold):
    boxes, scores = random_boxes(150, rounded=True)
    expected = naive_nms(boxes, scores, iou_threshold, 0)
    assert ops.nms(boxes, scores, iou_threshold).tolist() == expected
    labels = torch.arange(150) % 3
    kept = [torch.where(labels == label)[0][naive_nms(
        boxes[labels == label], scores[labels == label], iou_threshold, 0)] for label in range(3)]
    kept = torch.cat(kept)
    kept = kept[scores[kept].argsort(descending=True)]
    assert torch.equal(ops.batched_nms(boxes, scores, labels, iou_threshold), kept)
    assert ops.nms(boxes[:0], scores[:0], 0.5).shape == (0,)
    with pytest.raises(ValueError, match=r'must have shapes \(N, 4\) and \(N,\), got \(150, 3\)'):
        torch.ops.torchvision.nms(boxes[:, :3], scores, 0.5)


def test_the_threshold_is_compared_in_float64():
    """IoU 3 / 10 in float32 is more than .3 and not more than its float32: torchvision drops it,
    mmcv keeps it."""
    from mmposenc.compat.nms import nms
    boxes = torch.tensor([[0., 0, 10, 1], [0, 0, 3, 1]])
    scores = torch.tensor([0.9, 0.8])
    assert ops.nms(boxes, scores, 0.3).tolist() == [0]
    assert nms(boxes, scores, 0.3, 0).tolist() == [0, 1]


def calls():
    """Of every operator, with tensors that want gradients."""
    x, rois = random_case(3, torch.float32, (6, 5), channels=6)
    x.requires_grad_()
    names = torch.ops.torchvision
    return [(names.nms.default, (*random_boxes(20), 0.5)),
            (names.roi_align.default, (x, rois, 0.25, 3, 2, 2, True))]


@pytest.mark.parametrize('which', range(2))
def test_torch_knows_schema_autograd_and_shapes(which):
    """What torch.compile and torch.export go by."""
    operator, args = calls()[which]
    found = torch.library.opcheck(operator, args, test_utils=(
        'test_schema', 'test_autograd_registration', 'test_faketensor'))
    assert set(found.values()) == {'SUCCESS'}


def test_export_and_compile_see_them():
    class Head(torch.nn.Module):
        def forward(self, x, rois, boxes, scores):
            return ops.roi_align(x, rois, (2, 2), 0.25, 2, True), ops.nms(boxes, scores, 0.5)

    x, rois = random_case(4, torch.float32, (6, 5))
    boxes, scores = random_boxes(20)
    given = (x, rois, boxes, scores)
    exported = torch.export.export(Head(), given)
    names = {str(node.target) for node in exported.graph.nodes}
    assert {'torchvision.roi_align.default', 'torchvision.nms.default'} <= names
    for one, other in zip(exported.module()(*given), Head()(*given), strict=True):
        assert torch.equal(one, other)
    compiled = torch.compile(lambda x: ops.roi_align(x, rois, 2, 0.25, 2).sum(),
                             backend='aot_eager', fullgraph=True)
    x.requires_grad_()
    grad, = torch.autograd.grad(compiled(x), x)
    expected, = torch.autograd.grad(ops.roi_align(x, rois, 2, 0.25, 2).sum(), x)
    torch.testing.assert_close(grad, expected)


def test_autocast_and_half_precision():
    x, rois = random_case(5, torch.float32, (6, 5))
    single = ops.roi_align(x.half().float(), rois.half().float(), (2, 2), 0.25, 2)
    assert torch.equal(ops.roi_align(x.half(), rois.half(), (2, 2), 0.25, 2), single.half())
    with torch.autocast('cpu', torch.bfloat16):
        assert ops.roi_align(x.bfloat16(), rois, (2, 2), 0.25, 2).dtype == torch.bfloat16
