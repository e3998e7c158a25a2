"""Padded batches through a whole segmentor."""
from __future__ import annotations

import copy

import pytest
import torch
from helpers import shrunk_configs
from helpers.default_scope import scope_fixture
from helpers.shrunk_configs import collated, samples, shrink
from mmengine.model.utils import revert_sync_batchnorm

from mmposenc.engine import load_config

scope = scope_fixture('mmseg')
SIZES = [(50, 90), (90, 41), (33, 33)]
CONFIGS = {name: f'mmposenc::segmentation/sem_fpn/fpn_{stem}_ade20k-512x512.py' for name, stem in {
    'pvt-peg': 'pvt-t-peg_8xb2-80k', 'deit-irpe': 'deit-s_irpe-k_8xb2-80k'}.items()}


def build(name='pvt-peg', **test_cfg):
    cfg = shrink(load_config(CONFIGS[name]))
    cfg.model.backbone.update(mask_padding=True, drop_path_rate=0.0)
    cfg.model.data_preprocessor.update(size=None, size_divisor=32, test_cfg=dict(size_divisor=32))
    cfg.model.decode_head.num_classes = 3
    cfg.model.test_cfg.update(test_cfg)
    return revert_sync_batchnorm(shrunk_configs.build(cfg)).eval()


def items(sizes=SIZES):
    return collated(samples(load_config(CONFIGS['pvt-peg']), len(sizes), sizes=sizes))


def predict(model, data):
    with torch.no_grad():
        return model(**model.data_preprocessor(copy.deepcopy(data)), mode='predict')


def alone(data):
    return [{key: values[i:i + 1] for key, values in data.items()}
            for i in range(len(data['inputs']))]


@pytest.mark.parametrize('training', [False, True])
def test_a_batch_is_padded_after_its_images_are_normalised(training):
    batch = build().data_preprocessor(items(), training)
    assert batch['inputs'].shape == (3, 3, 96, 96) and batch['inputs'].img_shapes == SIZES
    assert not batch['inputs'][0, :, SIZES[0][0]:].any()


@pytest.mark.parametrize('backbone', ['pvt-peg', 'deit-irpe'])
def test_sliding_windows_of_a_padded_batch_give_what_each_image_gets_alone(backbone):
    """Whatever the FPN and the head do with padding: no window reaches into it."""
    model = build(backbone, mode='slide', crop_size=(48, 48), stride=(32, 32))
    data = items()
    for i, (sample, one) in enumerate(zip(predict(model, data), alone(data), strict=True)):
        (single,) = predict(model, one)
        assert sample.seg_logits.data.shape == (3, *SIZES[i])
        torch.testing.assert_close(sample.seg_logits.data, single.seg_logits.data,
                                   atol=1e-5, rtol=1e-4)
        assert tuple(sample.img_shape) == SIZES[i]  # not a window's


def test_sliding_windows_of_equal_images_are_mmsegs():
    from mmseg.models import EncoderDecoder
    model = build(mode='slide', crop_size=(48, 48), stride=(32, 32))
    data = items([(64, 96), (64, 96)])
    batch = model.data_preprocessor(data)
    metas = [sample.metainfo for sample in batch['data_samples']]
    with torch.no_grad():
        ours = model.slide_inference(batch['inputs'], metas)
        theirs = EncoderDecoder.slide_inference(model, batch['inputs'], copy.deepcopy(metas))
    assert torch.equal(ours, theirs)
    assert metas[0]['img_shape'] == (64, 96)


class MetaReader(torch.nn.Module):
    """A head whose maps have the size that Mask2Former's (the padded image's, else the image's) or
    MaskFormer's (each image's own) reads from what is known of the images."""
    align_corners, num_classes, out_channels = False, 3, 3

    def __init__(self, each_image):
        super().__init__()
        self.each_image = each_image

    def predict(self, feats, metas, test_cfg):
        one = metas[0]
        sizes = [meta['img_shape'] for meta in metas] if self.each_image else [
            one['pad_shape'] if 'pad_shape' in one else one['img_shape']] * len(metas)
        return torch.cat([torch.nn.functional.interpolate(feats[0][i:i + 1, :3], tuple(size))
                          for i, size in enumerate(sizes)])


@pytest.mark.parametrize('each_image', [False, True])
@pytest.mark.parametrize('sizes', [[(50, 90)], [(64, 96), (64, 96)], SIZES])
def test_sliding_windows_with_heads_that_read_the_sizes_of_images(each_image, sizes):
    model = build(mode='slide', crop_size=(48, 48), stride=(32, 32))
    model.decode_head = MetaReader(each_image)
    for sample, size in zip(predict(model, items(sizes)), sizes, strict=True):
        assert sample.pred_sem_seg.data.shape == (1, *size)


def test_a_test_batch_without_a_rule_is_padded_to_its_largest_image():
    model, data = build(), items()
    assert {tuple(sample.pad_shape) for sample in predict(model, data)} == {(96, 96)}
    model.data_preprocessor.test_cfg = None
    assert model.data_preprocessor(copy.deepcopy(data))['inputs'].shape == (3, 3, 90, 90)
    assert model.data_preprocessor(dict(inputs=data['inputs']))['data_samples'] is None
    assert [sample.pred_sem_seg.data.shape[1:] for sample in predict(model, data)] == SIZES
