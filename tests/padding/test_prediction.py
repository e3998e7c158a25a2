"""Predictions of a padded batch against those of each image alone."""
import copy
import pickle
from types import SimpleNamespace

import pytest
import torch
from helpers.tiny_detr import deformable, images, pvt, resnet
from mmdet.models import DetTTAModel
from mmengine.config import ConfigDict
from mmengine.registry import MODELS, DefaultScope
from mmengine.structures import PixelData
from mmseg.structures import SegDataSample

from mmposenc.padding import keep_padding_out
from mmposenc.padding.single_images import padded_as_alone

SIZES = ((97, 122), (160, 86))
#: The size of a segmentor's pictures before they were resized, and of their label maps.
ORIGINAL = (50, 70)


def retinanet(backbone, channels, preprocessor='DetDataPreprocessor'):
    return dict(
        type='RetinaNet', backbone=backbone, data_preprocessor=dict(
            type=preprocessor, mean=[100.0] * 3, std=[60.0] * 3, pad_size_divisor=32, pad_value=2),
        neck=dict(type='FPN', in_channels=channels, out_channels=8, num_outs=2),
        bbox_head=dict(type='RetinaHead', num_classes=3, in_channels=8, feat_channels=8,
                       stacked_convs=1, bbox_coder=dict(type='DeltaXYWHBBoxCoder'),
                       anchor_generator=dict(type='AnchorGenerator', octave_base_scale=2,
                                             scales_per_octave=1, ratios=[1.0], strides=[16, 32])),
        train_cfg=dict(assigner=dict(type='MaxIoUAssigner', pos_iou_thr=0.5, neg_iou_thr=0.4),
                       allowed_border=-1, pos_weight=-1),
        test_cfg=dict(nms_pre=50, min_bbox_size=0, score_thr=0.0, max_per_img=20,
                      nms=dict(type='nms', iou_threshold=0.5)))


def segmentor(rule, **test_cfg):
    """A segmentor whose preprocessor pads to another multiple in training."""
    return dict(
        type='EncoderDecoder', backbone=dict(pvt(out_indices=(1,)), mask_padding=False),
        data_preprocessor=dict(type='mmposenc.SegDataPreProcessor', mean=[100.0] * 3,
                               std=[60.0] * 3, size_divisor=64, test_cfg=rule),
        decode_head=dict(type='FCNHead', in_channels=8, channels=8, num_classes=3, num_convs=1,
                         norm_cfg=dict(type='BN')), test_cfg=test_cfg)


#: Models whose padding is another's, or is read by another part.
KINDS = {
    'RetinaNet': retinanet(resnet(out_indices=(2, 3)), [16, 32]),
    'RetinaNet with a masked backbone': retinanet(pvt(out_indices=(2, 3)), [16, 16],
                                                  'mmposenc.DetDataPreprocessor'),
    'DETR that masks padding': deformable(backbone=resnet(out_indices=(3,)), channels=[32]),
    'segmentor': segmentor(None, mode='whole'),
    'segmentor, multiples': segmentor(dict(size_divisor=32), mode='whole'),
    'segmentor, windows': segmentor(
        None, mode='slide', crop_size=(48, 48), stride=(32, 32))}


def build(name):
    """A model with random weights."""
    with DefaultScope.overwrite_default_scope('mmseg' if 'segmentor' in name else 'mmdet'):
        torch.manual_seed(0)
        model = MODELS.build(ConfigDict(copy.deepcopy(KINDS[name]))).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
    return model


def batch(model, sizes, training=False):
    """Images as a preprocessor makes a batch of them."""
    data = images(sizes)
    if hasattr(model, 'decode_head'):
        data['data_samples'] = [SegDataSample(metainfo=dict(img_shape=size, ori_shape=ORIGINAL))
                                for size in sizes]
    data = model.data_preprocessor(data, training)
    for sample in data['data_samples'] if hasattr(model, 'decode_head') else ():
        sample.gt_sem_seg = PixelData(data=torch.zeros(1, *ORIGINAL, dtype=torch.long))
    return data


@torch.no_grad()
def predict(model, sizes):
    return model(**batch(model, sizes), mode='predict')


def numbers(sample):
    if 'seg_logits' in sample:
        assert sample.gt_sem_seg.shape == sample.pred_sem_seg.shape == ORIGINAL
        return [sample.seg_logits.data]
    found = sample.pred_instances
    assert len(found) > 1
    return [found.bboxes, found.scores, found.labels]


@pytest.mark.parametrize('name', KINDS)
def test_a_batch_gives_what_each_image_gives_alone(name):
    """And a sample says of its batch what it said."""
    plain = build(name)
    kept = keep_padding_out(copy.deepcopy(plain))
    assert [*kept.state_dict()] == [*plain.state_dict()]
    for size, one, mixed, sample in zip(SIZES, predict(kept, SIZES), predict(plain, SIZES),
                                        batch(plain, SIZES)['data_samples'], strict=True):
        alone, = predict(plain, [size])
        torch.testing.assert_close(numbers(one), numbers(alone), rtol=0, atol=1e-5)
        assert one.metainfo == sample.metainfo
        with pytest.raises(AssertionError):  # This is what it is for.
            torch.testing.assert_close(numbers(mixed), numbers(alone), rtol=1e-4, atol=1e-4)


def test_images_padded_as_alone_are_predicted_together(monkeypatch):
    kept, calls = keep_padding_out(build('RetinaNet')), []
    own = type(kept).predict
    monkeypatch.setattr(type(kept), 'predict', lambda self, x, *args, **options: calls.append(
        len(x)) or own(self, x, *args, **options))
    predict(kept, [(97, 122), (100, 122)])
    predict(kept, SIZES)
    assert calls == [2, 1, 1]


def test_training_is_the_models_own():
    losses = []
    for each in (build('RetinaNet'), keep_padding_out(build('RetinaNet'))):
        data = batch(each.train(), SIZES, training=True)
        losses.append(each.parse_losses(each(**data, mode='loss'))[0])
    assert losses[0] == losses[1] != 0


@pytest.mark.parametrize('copied', [
    copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=['copied', 'pickled'])
def test_a_copy_is_a_model_of_its_own(copied):
    model = keep_padding_out(build('RetinaNet'))
    other, expected = copied(model), predict(model, SIZES)
    for parameter in model.parameters():
        parameter.data.zero_()
    torch.testing.assert_close(*([numbers(each) for each in found]
                                 for found in (predict(other, SIZES), expected)))
    assert keep_padding_out(other) is other


def test_models_that_merge_predictions_and_others():
    merging = DetTTAModel(tta_cfg=ConfigDict(nms=dict(type='nms', iou_threshold=0.5),
                                             max_per_img=50), module=build('RetinaNet'))
    assert keep_padding_out(merging) is merging and 'predict' in vars(merging.module)
    with pytest.raises(ValueError, match='Linear must be a detector'):
        keep_padding_out(torch.nn.Linear(1, 1))


def test_sizes_that_do_not_fit_the_batch_are_told():
    kept, data = keep_padding_out(build('RetinaNet')), batch(build('RetinaNet'), SIZES)
    data['data_samples'][1].set_metainfo(dict(img_shape=(161, 86)))
    with pytest.raises(ValueError, match=r'img_shapes=\[\(97, 122\), \(161, 86\)\] must hold one'):
        kept(**data, mode='predict')


@pytest.mark.parametrize('options, shape', [
    (dict(pad_size_divisor=4, pad_value=2.0), (8, 12)),
    (dict(pad_size_divisor=4, test_cfg=None), (5, 9)),
    (dict(pad_size_divisor=4, test_cfg=dict(size_divisor=3)), (6, 9)),
    (dict(test_cfg=dict(size=(6, 20)), pad_val=2.0), (6, 20))])
def test_an_image_alone_is_padded_as_its_preprocessor_does(options, shape):
    out = padded_as_alone(torch.ones(1, 1, 5, 9), SimpleNamespace(**options))
    assert out.shape[2:] == shape and out[..., :5, :9].eq(1).all()
    value = 2 if {'pad_value', 'pad_val'} & {*options} else 0
    assert out.sum() == 45 + value * (out.numel() - 45)
