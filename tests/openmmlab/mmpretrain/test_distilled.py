"""Distillation through a token: the loss written out, and a teacher that stays what it is."""
from __future__ import annotations

import pytest
import timm
import torch
from torch import nn

from mmposenc.registry import MODELS


class Teacher(nn.Module):
    """Logits that only depend on an image's mean; a BatchNorm and dropout would show training."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.norm, self.fc = nn.BatchNorm1d(1), nn.Linear(1, classes)
        self.drop = nn.Dropout(0.5)
        self.calls: list[torch.Tensor] = []

    def forward(self, inputs, data_samples=None, mode='tensor'):
        logits = self.fc(self.drop(self.norm(inputs.mean((1, 2, 3))[:, None])))
        self.calls.append(logits)
        return logits


def build(teacher, **changes):
    cfg = dict(
        type='mmposenc.DistilledClassifier', teacher=teacher,
        data_preprocessor=dict(type='mmpretrain.ClsDataPreprocessor'),
        backbone=dict(type='mmposenc.DeiT', embed_dims=8, num_layers=1, num_heads=2, img_size=32,
                      distilled=True),
        head=dict(type='mmposenc.DistillationHead', num_classes=3, in_channels=8, alpha=0.25,
                  loss=dict(type='mmpretrain.LabelSmoothLoss', label_smooth_val=0.1,
                            mode='original')))
    return MODELS.build({**cfg, **changes})


def samples(*labels, scores=None):
    from mmpretrain.structures import DataSample
    made = [DataSample().set_gt_label(label) for label in labels]
    for sample, score in zip(made, scores or (), strict=False):
        sample.set_gt_score(torch.tensor(score))
    return made


@pytest.mark.parametrize('scores', [None, [[0.7, 0.3, 0.0], [0.0, 0.0, 1.0]]])
def test_loss_written_out(scores) -> None:
    teacher = Teacher()
    model = build(teacher)
    model.init_weights()
    model.train()
    x = torch.randn(2, 3, 32, 32)
    losses = model(x, samples(0, 2, scores=scores), mode='loss')

    cls_token, dist_token = model.backbone(x)[0]
    target = torch.tensor(scores or [[1.0, 0, 0], [0, 0, 1.0]]) * 0.9 + 0.1 / 3
    by_class = model.head.layers.head(cls_token).log_softmax(-1)
    expected = 0.75 * -(target * by_class).sum(-1).mean()
    torch.testing.assert_close(losses['loss_cls'], expected)
    decided = teacher.calls[-1].argmax(-1)
    by_teacher = model.head.layers.head_dist(dist_token).log_softmax(-1)
    expected = 0.25 * -by_teacher[torch.arange(2), decided].mean()
    torch.testing.assert_close(losses['loss_distill'], expected)
    total, logged = model.parse_losses(losses)
    torch.testing.assert_close(logged['loss'], losses['loss_cls'] + losses['loss_distill'])
    total.backward()
    assert all(p.grad is not None for p in model.parameters())


def test_teacher_is_frozen_in_evaluation_and_outside() -> None:
    teacher = Teacher()
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    model = build(teacher)
    model.train()
    model(torch.randn(4, 3, 32, 32), samples(0, 1, 2, 0), mode='loss')
    assert not teacher.training and not teacher.calls[-1].requires_grad
    assert all(torch.equal(value, before[name]) for name, value in teacher.state_dict().items())
    assert not any('teacher' in name for name in model.state_dict())
    assert {id(p) for p in teacher.parameters()}.isdisjoint(id(p) for p in model.parameters())
    assert model.double() is model
    assert teacher.fc.weight.dtype == torch.float64


def test_without_a_teacher_it_can_only_be_tested() -> None:
    model = build(None).eval()
    x = torch.randn(2, 3, 32, 32)
    assert model(x, mode='tensor').shape == (2, 3)
    with pytest.raises(RuntimeError, match='the teacher is None'):
        model(x, samples(0, 1), mode='loss')


def test_a_teacher_needs_weights(tmp_path) -> None:
    with pytest.raises(ValueError, match='teacher has no init_cfg'):
        build(dict(type='mmpretrain.TimmClassifier', model_name='test_resnet'))
    file = str(tmp_path / 'teacher.pth')
    teacher = dict(type='mmpretrain.TimmClassifier', model_name='test_resnet', num_classes=3,
                   init_cfg=dict(type='Pretrained', checkpoint=file))
    source = timm.create_model('test_resnet', num_classes=3)
    torch.save(dict(model=source.state_dict()), file)
    model = build(teacher)
    x = torch.randn(2, 3, 32, 32)
    with pytest.raises(RuntimeError, match='is not loaded'):
        model(x, samples(0, 1), mode='loss')
    model.init_weights()
    assert all(torch.equal(value, source.state_dict()[name])
               for name, value in model._teacher[0].model.state_dict().items())
    assert set(model(x, samples(0, 1), mode='loss')) == {'loss_cls', 'loss_distill'}
    torch.save({'head.fc.weight': torch.zeros(3, 3)}, file)
    with pytest.raises(ValueError, match='teacher.pth does not fit the model'):
        build(teacher).init_weights()


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(ValueError, match=r'the teacher returns logits of shape \(2, 5\).*\(2, 3\)'):
        build(Teacher(5))(torch.randn(2, 3, 32, 32), samples(0, 1), mode='loss')
    with pytest.raises(ValueError, match='head is a LinearClsHead'):
        build(Teacher(), head=dict(type='mmpretrain.LinearClsHead', num_classes=3, in_channels=8))
    with pytest.raises(ValueError, match='alpha=2.0 must be in'):
        build(Teacher(), head=dict(type='mmposenc.DistillationHead', num_classes=3, in_channels=8,
                                   alpha=2.0))
    with pytest.raises(ValueError, match='x is a list; a padded batch'):
        build(Teacher())([torch.randn(3, 32, 32)], samples(0), mode='loss')
