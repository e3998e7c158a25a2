"""Detectors of mmdet learn and predict on the PyTorch forms of mmcv's operators."""
import copy

import pytest
import torch

import mmposenc  # noqa: F401  (before mmdet)

pytest.importorskip('mmdet')
pytest.importorskip('mmseg')

import tinyfamilies  # noqa: E402


@pytest.mark.slow
@pytest.mark.parametrize('name', ['Mask R-CNN', 'Deformable DETR'])
def test_detector_learns_and_predicts(name):
    """Ten steps on two images lower the loss; every parameter gets a finite gradient. NMS, RoIAlign
    and deformable attention run in both passes, and the focal loss with DETR."""
    model = tinyfamilies.build(name, 'ResNet-50').train()
    data = tinyfamilies.batch(model, [(64, 96, 0), (90, 64, 1)], training=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(10):
        torch.manual_seed(1)  # the same sampled regions at every step
        loss, _ = model.parse_losses(model(**copy.deepcopy(data), mode='loss'))
        optimizer.zero_grad()
        loss.backward()
        grads = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0], losses
    wrong = [name for name, grad in grads.items() if grad is None or not grad.isfinite().all()]
    assert not wrong, wrong
    with torch.no_grad():
        predictions = model.eval()(**copy.deepcopy(data), mode='predict')
    for sample in predictions:
        found = sample.pred_instances
        assert bool(found.bboxes.isfinite().all()) and bool((found.scores.diff() <= 0).all())
        assert len(found) <= 100
        assert 'masks' not in found or found.masks.shape == (len(found), *sample.ori_shape)
