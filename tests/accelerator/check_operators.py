"""The PyTorch forms of mmcv's operators on the accelerator: the CPU's values, and no waits where
none is unavoidable."""
import pytest
import torch
from compare import compare, draw
from device import Device, to_cpu
from torch import nn

import mmposenc  # noqa: F401  (before mmcv's operators)

ops = pytest.importorskip('mmcv.ops')
ROIS = torch.tensor([[0, 1., 2, 19, 21], [1, 3, 1, 33, 30], [0, 0, 0, 60, 60]])


def steps_from_zero(layer):
    """Steps of its own, as after some training."""
    nn.init.normal_(layer.conv_offset.weight, std=0.3)
    return layer


class Region(nn.Module):
    """An operator of a map and the regions above."""

    def __init__(self, operator):
        super().__init__()
        self.operator = operator

    def forward(self, x):
        return self.operator(x, ROIS.to(x.device, x.dtype))


#: The module, the shape of its input, and how often it may wait; None has to wait, for its regions.
CASES = {
    'deformable': (lambda: steps_from_zero(ops.DeformConv2dPack(8, 6, 3, padding=1, stride=2)),
                   (2, 8, 7, 9), 0),
    'modulated': (lambda: steps_from_zero(ops.ModulatedDeformConv2dPack(
        8, 6, 3, padding=1, groups=2, deform_groups=2)), (2, 8, 7, 9), 0),
    'carafe': (lambda: ops.CARAFEPack(8, 2), (2, 8, 5, 6), 0),
    'psa': (lambda: ops.PSAMask('distribute', (5, 5)), (2, 25, 4, 6), 0),
    # Regions are checked.
    'deformable roi pool': (lambda: ops.DeformRoIPoolPack((3, 2), 4, 8, 0.25, 2), (2, 4, 16, 16),
                            None),
}


@pytest.mark.parametrize('name', CASES)
def test_operators(name):
    torch.manual_seed(0)
    build, shape, most = CASES[name]
    model = build()
    if name == 'deformable roi pool':
        nn.init.normal_(model.offset_fc[-1].weight, std=0.3)
        model = Region(model)
    waits = compare(model, lambda m, x: m(x), [draw(*shape)])
    own = {each: count for each, count in waits.items() if 'mmposenc/operators' in each.where}
    assert own if most is None else sum(own.values()) <= most, waits


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
