"""Predictions and losses of a padded batch against those of each image alone."""
import copy
import pickle
import random
import re
from types import SimpleNamespace

import pytest
import tinyfamilies as families
import torch
from losscases import assert_close, float64
from mmdet.models import DetTTAModel
from mmengine.config import ConfigDict
from mmengine.registry import MODELS, DefaultScope
from mmengine.structures import PixelData
from tinydetr import short

from mmposenc.padding import keep_padding_out
from mmposenc.padding.images import as_alone, image_sizes

PAIR = [(97, 122, 0), (128, 86, 1)]
FAMILIES = [*families.DETECTORS, *families.SEGMENTORS]
#: Each family on each backbone; without ``--all``, on one of them. (Two compute long.)
PAIRS = [pytest.param(name, backbone, marks=(
    () if (i + j) % 3 == 0 and name not in ('SOLOv2', 'Mask R-CNN') else pytest.mark.slow))
         for i, name in enumerate(FAMILIES) for j, backbone in enumerate(families.BACKBONES)]


def kept_out(name, backbone, **model):
    """A model that padding is kept out of, on one of the backbones or on its own."""
    built = (families.build(name, backbone, **model) if backbone in families.BACKBONES else
             families.of_config(families.config_path(families.OWN[name])))
    for cfg in (built.test_cfg or {}, *(part for part in (built.test_cfg or {}).values()
                                        if isinstance(part, dict))):
        if 'score_thr' in cfg:
            # Random weights have no confident boxes; SOLO computes a mask for each.
            cfg['score_thr'] = 0.6 if name == 'SOLOv2' else 0.0
    if name == 'SOLOv2':
        built.test_cfg.update(nms_pre=50, max_per_img=20)
        built.mask_head.test_cfg = built.test_cfg
    return keep_padding_out(built)


def assert_batch_is_images(model, pair):
    """What a batch gives for its images is what each gives alone, with 1e3 in the padding."""
    with torch.no_grad():
        batched = model(**families.batch(model, pair, junk=1e3), mode='predict')
        for image, found in zip(pair, batched, strict=True):
            families.assert_same(model(**families.batch(model, [image]), mode='predict')[0], found)


@pytest.mark.parametrize(('name', 'backbone'), PAIRS)
def test_predictions_of_a_batch_are_those_of_the_image_alone(name, backbone):
    assert_batch_is_images(kept_out(name, backbone), PAIR)


@pytest.mark.parametrize('name', short(families.PREDICTORS))
def test_any_head_predicts(name):
    """Where it attends to a whole map, and where it needs maps that are twice as large as others.
    """
    model = kept_out(name, 'ResNet-50')
    assert_batch_is_images(model, PAIR)
    assert model.reads_padding() is None


OWN = {'PIDNet': r'BatchNorm2d\): The size of tensor', 'HRNet': '^EncoderDecoder: maps of an image',
       'CenterNet': '^CenterNet: maps of an image',
       'ERFNet': r'MaxPool2d\): maps of .* are too small',
       'EfficientDet': r'Conv2dAdaptivePadding\): pad reads the padding'}


@pytest.mark.parametrize('name', short(OWN))
def test_any_backbone_predicts(name, monkeypatch):
    """Image by image where it reads padding, or rounds sides its own way, which is told once."""
    told = []
    monkeypatch.setattr('mmposenc.backbones.modules.print_log',
                        lambda line, *args: told.append(line))
    model = kept_out(name, 'own')
    pair = [(96, 128, 0), (128, 64, 1)] if name == 'PIDNet' else PAIR
    assert_batch_is_images(model, pair)
    assert_batch_is_images(model, pair[::-1])
    assert [re.search(OWN[name], line) is not None for line in told] == [True]


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


@pytest.mark.slow
@pytest.mark.parametrize('name', ['RetinaNet', 'ATSS', 'Semantic FPN'])
def test_pairs_of_any_sizes(name):
    """(benchmarks/padding_pairs.py: of all families and backbones.)"""
    model, draw = kept_out(name, 'ResNet-50'), random.Random(0)
    for number in range(20):
        assert_batch_is_images(model, [(draw.randint(33, 110), draw.randint(33, 110), number + i)
                                       for i in range(2)])


@pytest.mark.parametrize('name', short(['UperNet', 'RTMDet'], 'RTMDet'))
def test_training_norms_read_no_padding(name):
    """BatchNorms of backbone and head train: losses, gradients and running statistics do not
    depend on how much padding there is nor on what it holds."""
    results = []
    with float64():
        for junk in (None, 1e3):
            model = kept_out(name, 'ResNet-50').train()
            if junk is not None:
                setattr(model.data_preprocessor, *(
                    ('pad_size_divisor', 64) if name == 'RTMDet' else ('size_divisor', 48)))
            loss = families.losses_of(model, [(64, 96, 0), (90, 64, 1)], junk)
            loss.backward()
            results.append((loss.item(), {key: torch.zeros_like(p) if p.grad is None else p.grad
                                          for key, p in model.named_parameters()},
                            list(model.buffers())))
    assert_close(results[0][:2], results[1][:2])
    torch.testing.assert_close(results[0][2], results[1][2])


def test_it_is_the_model_without_padding():
    """Without padding, and one image a batch, nothing changes."""
    pair = [(64, 96, 0)]
    model, plain = kept_out('RetinaNet', 'ResNet-50'), families.build('RetinaNet', 'ResNet-50')
    assert list(model.state_dict()) == list(plain.state_dict())
    plain.test_cfg.score_thr = 0.0
    with torch.no_grad():
        a, b = (m(**families.batch(m, pair), mode='predict')[0].pred_instances
                for m in (model, plain))
    assert torch.equal(a.bboxes, b.bboxes) and torch.equal(a.scores, b.scores)
    a, b = (families.losses_of(m.train(), pair) for m in (model, plain))
    assert a.item() == b.item()


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
    model.__class__ = Scaled
    assert_batch_is_images(keep_padding_out(model), [(96, 128, 0), (128, 96, 1)])


def test_what_padding_can_not_be_kept_out_of_predicts_and_does_not_train():
    def refused(model, says):
        assert_batch_is_images(model, PAIR)
        with pytest.raises(ValueError, match=says):
            families.losses_of(model.train(), PAIR)
    model = kept_out('RetinaNet', 'PVT')
    model.backbone.mask_padding = False
    refused(model, '^PVT has mask_padding=False; set mask_padding=True')
    model = kept_out('RetinaNet', 'PVT')
    with DefaultScope.overwrite_default_scope('mmdet'):
        model.backbone = MODELS.build(dict(type='PyramidVisionTransformer', num_layers=[1] * 4,
                                           embed_dims=8, num_heads=[1, 2, 4, 8])).eval()
    refused(model, r'^backbone.* was not computed from .* use mmposenc.PVT with mask_padding=True '
                   'instead of PyramidVisionTransformer')
    model = kept_out('Semantic FPN', 'ResNet-50')
    model.decode_head.register_forward_pre_hook(
        lambda module, maps: ([x + x.mean((2, 3), True) for x in maps[0]],))
    refused(model, r'^decode_head.* reads padding: KeepPaddingOut cannot train EncoderDecoder')
    with pytest.raises(ValueError, match='Linear must be a detector'):
        keep_padding_out(torch.nn.Linear(1, 1))


def test_sizes_that_do_not_fit_the_batch_are_told():
    batch, sample = torch.zeros(1, 3, 8, 8), SimpleNamespace(metainfo=dict(img_shape=(9, 8)))
    for samples, sizes in (([sample], r'\[\(9, 8\)\]'), ([sample] * 2, r'\[\(9, 8\), \(9, 8\)\]')):
        with pytest.raises(ValueError, match=f'img_shapes={sizes} must hold one'):
            image_sizes(batch, samples)


@pytest.mark.parametrize('options, shape', [
    (dict(pad_size_divisor=4, pad_value=2.0), (8, 12)),
    (dict(test_cfg=dict(size=(6, 20)), pad_val=2.0), (6, 20))])
def test_an_image_alone_is_filled_up_as_its_preprocessor_does(options, shape):
    out = as_alone(torch.ones(1, 1, 5, 9), SimpleNamespace(**options))
    assert out.shape[2:] == shape and out[..., :5, :9].eq(1).all()
    assert out.sum() == 45 + 2 * (out.numel() - 45)
