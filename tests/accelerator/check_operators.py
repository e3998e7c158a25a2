"""Suppression of boxes on the accelerator: the CPU's choices, and no more waits than it needs."""
import pytest
from compare import draw
from device import Device, to_cpu

import mmposenc  # noqa: F401  (before mmcv's operators)

ops = pytest.importorskip('mmcv.ops')


def test_nms_waits_for_boxes_scores_and_what_is_kept_alone():
    """Which are copied to the host, and back."""
    boxes = draw(300, 4).abs() * 50
    boxes[:, 2:] += boxes[:, :2]
    scores = draw(300).sigmoid()
    with Device() as gpu:
        found = ops.nms(gpu.tensor(boxes), gpu.tensor(scores), 0.5)[1]
        waits = gpu.report()
    assert to_cpu(found).tolist() == ops.nms(boxes, scores, 0.5)[1].tolist()
    own = {each: count for each, count in waits.items() if 'operators/nms' in each.where}
    assert 0 < sum(own.values()) <= 3, waits
