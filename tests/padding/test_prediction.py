"""Predictions of a padded batch against those of each image alone."""
import copy
import pickle
import re
from types import SimpleNamespace

import pytest
import torch
from helpers import tiny_upstream as families
from helpers.tiny_detr import short
from helpers.tiny_upstream import FAMILIES, assert_batch_is_images, kept_out
from mmdet.models import DetTTAModel
from mmengine.config import ConfigDict
from mmengine.registry import MODELS, DefaultScope
from mmengine.structures import PixelData
from torch._dynamo.testing import CompileCounter

from mmposenc.engine.training.compiling import compile_regions
from mmposenc.padding import keep_padding_out
from mmposenc.padding.images import image_sizes, padded_as_alone

PAIR = [(97, 122, 0), (128, 86, 1)]
#: Each family on each backbone; without ``--all``, on one of them. (Two compute long.)
PAIRS = [pytest.param(name, backbone, marks=(
    () if (i + j) % 3 == 0 and name not in ('SOLOv2', 'Mask R-CNN') else pytest.mark.slow))
         for i, name in enumerate(FAMILIES) for j, backbone in enumerate(families.BACKBONES)]


@pytest.mark.parametrize(('name', 'backbone'), PAIRS)
def test_predictions_of_a_batch_are_those_of_the_image_alone(name, backbone):
    assert_batch_is_images(kept_out(name, backbone), PAIR)


@pytest.mark.parametrize('name', short(families.PREDICTORS))
def test_any_head_predicts(name):
    """Where it attends to a whole map, and where it needs maps that are twice as large as others.
    """
    model = kept_out(name, 'ResNet-50')
    assert_batch_is_images(model, PAIR)
    assert model.predict.why_one_by_one is None


OWN = {'PIDNet': r'BatchNorm2d\): The size of tensor', 'HRNet': '^EncoderDecoder: maps of an image',
       'CenterNet': '^CenterNet: maps of an image',
       'ERFNet': r'MaxPool2d\): maps of .* are too small',
       'EfficientDet': r'Conv2dAdaptivePadding\): pad reads the padding'}


@pytest.mark.parametrize('name', short(OWN))
def test_any_backbone_predicts(name, monkeypatch):
    """Image by image where it reads padding, or rounds sides its own way, which is told once."""
    messages = []
    monkeypatch.setattr('mmposenc.backbones.modules.print_log',
                        lambda line, *args: messages.append(line))
    model = kept_out(name, 'own')
    pair = [(96, 128, 0), (128, 64, 1)] if name == 'PIDNet' else PAIR
    assert_batch_is_images(model, pair)
    assert_batch_is_images(model, pair[::-1])
    assert [re.search(OWN[name], line) is not None for line in messages] == [True]


@pytest.mark.slow
def test_views_of_an_image_are_predicted_like_it():
    """``DetTTAModel`` hands over batches of the views of its images."""
    model = DetTTAModel(tta_cfg=ConfigDict(nms=dict(type='nms', iou_threshold=0.5), max_per_img=50),
                        module=families.build('RetinaNet', 'ResNet-50'))
    assert keep_padding_out(model) is model

    def views(sizes):
        both = [[(height + add, width + add, seed) for height, width, seed in sizes]
                for add in (0, 40)]
        data = dict(inputs=[[families.image(*size) for size in each] for each in both],
                    data_samples=[[families.sample(model.module, *size) for size in each]
                                  for each in both])
        for sample in sum(data['data_samples'], []):
            sample.set_metainfo(dict(flip=False, flip_direction=None))
        return data
    with torch.no_grad():
        for image, found in zip(PAIR, model.test_step(views(PAIR)), strict=True):
            families.assert_same(model.test_step(views([image]))[0], found)


def test_without_padding_and_in_training_it_is_the_model():
    model, plain = kept_out('RetinaNet', 'ResNet-50'), families.build('RetinaNet', 'ResNet-50')
    assert list(model.state_dict()) == list(plain.state_dict())
    plain.test_cfg.score_thr = 0.0
    with torch.no_grad():
        a, b = (m(**families.batch(m, [(64, 96, 0)]), mode='predict')[0].pred_instances
                for m in (model, plain))
    assert torch.equal(a.bboxes, b.bboxes) and torch.equal(a.scores, b.scores)
    gradients = []
    for each in (model.train(), plain.train()):
        torch.manual_seed(0)  # samplers draw at random
        losses = each(**families.batch(each, PAIR, junk=1e3, training=True), mode='loss')
        each.parse_losses(losses)[0].backward()
        gradients.append([p.grad for p in each.parameters()] + list(each.buffers()))
    torch.testing.assert_close(*gradients, rtol=0, atol=0)


def test_a_sample_says_of_its_batch_what_it_said():
    model = kept_out('RetinaNet', 'ResNet-50')
    data = families.batch(model, PAIR)
    before = [dict(sample.metainfo) for sample in data['data_samples']]
    with torch.no_grad():
        after = [sample.metainfo for sample in model(**data, mode='predict')]
    assert after == before


def test_targets_of_another_size_are_left_alone_in_a_test():
    """mmseg loads label maps after the picture was resized."""
    model = kept_out('Semantic FPN', 'PVT')
    data = families.batch(model, PAIR)
    for sample in data['data_samples']:
        sample.gt_sem_seg = PixelData(data=torch.zeros(1, 200, 300, dtype=torch.long))
        sample.set_metainfo({'ori_shape': (200, 300)})
    with torch.no_grad():
        for found in model(**data, mode='predict'):
            assert found.gt_sem_seg.shape == found.pred_sem_seg.shape == (200, 300)


def test_sliding_windows_are_those_of_each_image():
    model = kept_out('PSPNet', 'PVT',
                     test_cfg=dict(mode='slide', crop_size=(48, 48), stride=(32, 32)))
    assert_batch_is_images(model, PAIR)


@pytest.mark.parametrize('copied', [
    copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=['copied', 'pickled'])
def test_a_copy_is_a_model_of_its_own(copied):
    model = kept_out('RetinaNet', 'ResNet-50')
    other = copied(model)
    for parameter in model.parameters():
        parameter.data.zero_()
    with torch.no_grad():
        found = other(**families.batch(other, PAIR), mode='predict')
    assert all(len(sample.pred_instances.scores.unique()) > 1 for sample in found)
    assert keep_padding_out(other) is other


def test_maps_of_a_backbone_of_ours_go_through_the_detectors_own_method():
    model = families.build('RetinaNet', 'PVT')
    model.test_cfg.score_thr = 0.0

    class Scaled(type(model)):
        def extract_feat(self, batch_inputs):
            return tuple(3 * level for level in super().extract_feat(batch_inputs))
    scaled = Scaled.__new__(Scaled)
    scaled.__dict__.update(model.__dict__)
    assert_batch_is_images(keep_padding_out(scaled), [(96, 128, 0), (128, 96, 1)])


def test_networks_that_read_padding_predict_image_by_image():
    def predicts(model, reason):
        assert_batch_is_images(model, PAIR)
        assert re.search(reason, model.predict.why_one_by_one)
    model = kept_out('RetinaNet', 'PVT')
    model.backbone.mask_padding = False
    predicts(model, '^PVT has mask_padding=False; set mask_padding=True')
    model = kept_out('RetinaNet', 'PVT')
    with DefaultScope.overwrite_default_scope('mmdet'):
        model.backbone = MODELS.build(dict(type='PyramidVisionTransformer', num_layers=[1] * 4,
                                           embed_dims=8, num_heads=[1, 2, 4, 8])).eval()
    predicts(model, r'^backbone.* was not computed from ')
    with pytest.raises(ValueError, match='Linear must be a detector'):
        keep_padding_out(torch.nn.Linear(1, 1))


@pytest.mark.parametrize('rule', [None, dict(size_divisor=32), dict(size=(160, 140))])
@pytest.mark.parametrize('mode', ['whole', 'slide'])
def test_images_one_by_one_are_padded_as_in_a_test(rule, mode):
    """Not as in training; the result is that of the model without the hook for each image."""
    test_cfg = dict(mode=mode, crop_size=(48, 48), stride=(32, 32))
    plain = families.build('PSPNet', 'PVT', test_cfg=test_cfg)
    plain.backbone.mask_padding = False
    plain.data_preprocessor.size_divisor = plain.data_preprocessor.pad_size_divisor = 64
    plain.data_preprocessor.test_cfg = rule
    model = keep_padding_out(copy.deepcopy(plain))
    with torch.no_grad():
        batched = model(**families.batch(model, PAIR, junk=1e3), mode='predict')
        for image, result in zip(PAIR, batched, strict=True):
            families.assert_same(plain(**families.batch(plain, [image]), mode='predict')[0], result)


@pytest.mark.parametrize('backbone', ['ResNet-50', 'PVT'])
def test_a_compiled_model_predicts_uncompiled(backbone, fresh_compiler):
    """Where padding is ignored; without padding compiled blocks run."""
    counter, model = CompileCounter(), kept_out('RetinaNet', backbone)
    compile_regions(model, backend=counter, dynamic=True)
    assert_batch_is_images(model, [(97, 128, 0), (96, 122, 1)])
    assert counter.frame_count == 0
    with torch.no_grad():
        model(**families.batch(model, [(128, 128, 0)]), mode='predict')
    assert counter.frame_count > 0


def test_sizes_that_do_not_fit_the_batch_are_told():
    batch, sample = torch.zeros(1, 3, 8, 8), SimpleNamespace(metainfo=dict(img_shape=(9, 8)))
    for samples, sizes in (([sample], r'\[\(9, 8\)\]'), ([sample] * 2, r'\[\(9, 8\), \(9, 8\)\]')):
        with pytest.raises(ValueError, match=f'img_shapes={sizes} must hold one'):
            image_sizes(batch, samples)


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
