"""The batch carries its images' sizes. (What backbones make of them: tests/detr,
tests/openmmlab/mmseg, where a segmentor's sizes are noted.)"""
import pytest
import torch

from mmposenc.registry import MODELS

SIZES = [(40, 64), (64, 30)]


def det_sample(size):
    from mmdet.structures import DetDataSample
    return DetDataSample(metainfo=dict(img_shape=size))


def cls_sample(size):
    from mmpretrain.structures import DataSample
    return DataSample().set_gt_label(1)


@pytest.mark.parametrize(('cfg', 'sample'), [
    (dict(type='mmposenc.ClsDataPreprocessor'), cls_sample),
    (dict(type='mmposenc.DetDataPreprocessor', pad_size_divisor=32), det_sample)])
def test_sizes_before_padding_are_noted_on_the_batch(cfg, sample):
    batch = MODELS.build(cfg)(dict(inputs=[torch.zeros(3, *size) for size in SIZES],
                                   data_samples=list(map(sample, SIZES))), training=True)
    assert batch['inputs'].shape == (2, 3, 64, 64)
    assert batch['inputs'].img_shapes == SIZES


def test_sizes_are_noted_where_images_are_not_mixed():
    mixes = MODELS.build(dict(type='mmposenc.ClsDataPreprocessor', num_classes=2,
                              batch_augments=dict(augments=dict(type='Mixup', alpha=0.8))))
    for training in (False, True):
        inputs = mixes(dict(inputs=[torch.zeros(3, *size) for size in SIZES],
                            data_samples=list(map(cls_sample, SIZES))), training)['inputs']
        assert getattr(inputs, 'img_shapes', None) == (None if training else SIZES)
