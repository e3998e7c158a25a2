"""EoMT in mmseg and mmdet: Mask2Former's losses, images of any size, and annealed masks."""
import copy
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from helpers.default_scope import scope_fixture
from helpers.golden_files import assert_released, load_golden
from helpers.param_groups import without_gradient
from helpers.tiny_backbones import EOMT
from mmdet.registry import MODELS as DETECTORS
from mmdet.structures import DetDataSample
from mmdet.structures.mask import BitmapMasks
from mmengine.config import ConfigDict
from mmengine.registry import DefaultScope
from mmengine.structures import InstanceData, PixelData
from mmseg.registry import MODELS as SEGMENTORS
from mmseg.structures import SegDataSample

from mmposenc.backbones import load_pretrained
from mmposenc.engine.apps.raw_outputs import RawOutputs
from mmposenc.engine.training.mask_annealing import MaskAnnealingHook
from mmposenc.openmmlab.mmdet import EoMTHead

BACKBONE = dict(EOMT, type='mmposenc.EoMT', mask_padding=True, pos_encoding=dict(
    type='mmposenc.LearnedPositionEmbedding', num_prefix_embeds=0))
SIZES = [(30, 44), (37, 21)]
scope = scope_fixture('mmdet')


def numbers_of_a_shape(*shape, **options):
    """What torch.rand gave to the releases: the seed is the sum of the shape."""
    shape = shape if isinstance(shape[0], int) else shape[0]
    return torch.empty(*shape).uniform_(generator=torch.Generator().manual_seed(sum(shape)))


def test_losses_are_those_of_the_releases(monkeypatch):
    """Of an image with two objects and one without any."""
    params, arrays = load_golden('eomt_dinov2')
    backbone = DETECTORS.build(BACKBONE).train()
    load_pretrained(backbone, params)
    backbone.predictor.mask_probs.fill_(1)
    head = EoMTHead(num_things_classes=3, num_queries=5, train_cfg=dict(num_points=24))
    samples = [instances(arrays[f'labels.{i}'], arrays[f'masks.{i}']) for i in range(2)]
    monkeypatch.setattr(torch, 'rand', numbers_of_a_shape)
    losses = head.loss(backbone(arrays['x'], [(32, 32)] * 2), samples)
    assert len(losses) == 9
    for level in range(3):
        for ours, theirs in (('cls', 'cross_entropy'), ('mask', 'mask'), ('dice', 'dice')):
            name = f'loss_{ours}' if level == 2 else f'd{level}.loss_{ours}'
            assert_released(losses[name].squeeze(), arrays[f'loss_{theirs}.{level}'])


def instances(labels, masks):
    """A sample of mmdet with objects."""
    size = tuple(masks.shape[1:])
    sample = DetDataSample(metainfo=dict(img_shape=size, ori_shape=size, scale_factor=(1, 1)))
    sample.gt_instances = InstanceData(
        labels=labels, masks=BitmapMasks(masks.numpy().astype('uint8'), *size),
        bboxes=torch.zeros(len(labels), 4))
    return sample


def build(scope, *, classes=3, stuff=0, **test_cfg):
    torch.manual_seed(0)
    shared = dict(mean=[128.0] * 3, std=[64.0] * 3)
    backbone = {**BACKBONE, 'num_classes': classes}
    if scope == 'mmseg':
        model = SEGMENTORS.build(ConfigDict(
            type='mmposenc.EncoderDecoder', backbone=backbone, test_cfg=test_cfg,
            data_preprocessor=dict(type='mmposenc.SegDataPreProcessor', size_divisor=8,
                                   test_cfg=dict(size_divisor=8), **shared),
            decode_head=dict(type='mmposenc.EoMTDecodeHead', num_classes=classes, num_queries=5,
                             train_cfg=dict(num_points=64))))
    else:
        numbers = dict(num_things_classes=classes - stuff, num_stuff_classes=stuff)
        model = DETECTORS.build(ConfigDict(
            type='Mask2Former', backbone=backbone, train_cfg=dict(num_points=64),
            data_preprocessor=dict(type='mmposenc.DetDataPreprocessor', pad_mask=True,
                                   pad_seg=bool(stuff), pad_size_divisor=8, **shared),
            panoptic_head=dict(type='mmposenc.EoMTHead', num_queries=5, **numbers),
            panoptic_fusion_head=dict(type='MaskFormerFusionHead', **numbers),
            test_cfg=dict(panoptic_on=bool(stuff), instance_on=True, semantic_on=False,
                          max_per_image=6, iou_thr=0.8, object_mask_thr=0.0,
                          filter_low_score=True)))
    for name, p in model.named_parameters():
        torch.nn.init.normal_(p, float('norm' in name and name.endswith('weight')), 0.3)
    return model


def batch(scope, classes=3, stuff=0):
    """Two images of several sizes; the second has no object."""
    torch.manual_seed(1)
    samples = []
    for size, count in zip(SIZES, (2, 0), strict=True):
        labels = torch.arange(count) % (classes - stuff)
        sample = instances(labels, torch.rand(count, *size) > 0.5)
        sem_seg = torch.randint(0, classes, (1, *size)) if count else torch.full((1, *size), 255)
        if scope == 'mmseg':
            sample = SegDataSample(metainfo=dict(img_shape=size, ori_shape=size))
        if scope == 'mmseg' or stuff:
            sample.gt_sem_seg = PixelData(**{'data' if scope == 'mmseg' else 'sem_seg': sem_seg})
        samples.append(sample)
    return dict(inputs=[torch.randint(0, 256, (3, *size), dtype=torch.uint8) for size in SIZES],
                data_samples=samples)


@pytest.mark.parametrize('scope, classes, stuff', [
    ('mmseg', 3, 0), ('mmdet', 3, 0), ('mmdet', 2, 1)])
def test_a_step_with_padding_and_an_image_without_objects(scope, classes, stuff):
    """Every parameter has a gradient; what padding holds changes no loss."""
    model, data = build(scope, classes=classes, stuff=stuff).train(), batch(scope, classes, stuff)
    with DefaultScope.overwrite_default_scope(scope):
        assert without_gradient(model, copy.deepcopy(data)) == []
        data = model.data_preprocessor(data, training=True)
        losses = []
        for value in (0.0, 5.0):
            for image, (height, width) in zip(data['inputs'], SIZES, strict=True):
                image[:, height:], image[:, :, width:] = value, value
            torch.manual_seed(2)
            losses.append(model(**data, mode='loss'))
    torch.testing.assert_close(*losses)
    assert all(bool(each.isfinite().all()) for each in losses[0].values())


@pytest.mark.parametrize('test_cfg', [dict(mode='whole'), dict(
    mode='slide', crop_size=(24, 24), stride=(16, 16))])
def test_segments_of_odd_sizes_are_those_of_the_image_alone(test_cfg):
    model, data = build('mmseg', **test_cfg).eval(), batch('mmseg')
    for size, together, alone in pairs(model, data, 'mmseg'):
        logits = together.seg_logits.data
        assert logits.shape == (3, *size)
        torch.testing.assert_close(logits, alone.seg_logits.data, rtol=1e-4, atol=1e-5)
        assert torch.equal(together.pred_sem_seg.data[0], logits.argmax(0))
    if test_cfg['mode'] == 'whole':  # by the definition, of the pixels of the first image
        x = (data['inputs'][0].flip(0)[None].flip(1) - 128.0) / 64.0
        classes, masks = model.backbone(F.pad(x, (0, 4, 0, 2)), [(30, 44)])
        masks = F.interpolate(masks[-1], (32, 48), mode='bilinear')[0, :, :30, :44].sigmoid()
        expected = torch.einsum('qc,qhw->chw', classes[-1][0].softmax(-1)[:, :3], masks)
        found = predict(model, data, 'mmseg')[0].seg_logits.data
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def pairs(model, data, scope):
    """The size of each image, its prediction in the batch, and alone."""
    singles = [{name: [values[index]] for name, values in data.items()} for index in range(2)]
    alone = [predict(model, single, scope)[0] for single in singles]
    return zip(SIZES, predict(model, data, scope), alone, strict=True)


def predict(model, data, scope):
    with DefaultScope.overwrite_default_scope(scope), torch.no_grad():
        return model(**model.data_preprocessor(copy.deepcopy(data)), mode='predict')


def test_instances_and_panoptic_segments():
    """Masks and scores are those of the image alone, and fill its size."""
    model, data = build('mmdet', classes=2, stuff=1).eval(), batch('mmdet', 2)
    for size, together, alone in pairs(model, data, 'mmdet'):
        found = together.pred_instances
        assert found.masks.shape == (len(found), *size) and len(found) > 0
        torch.testing.assert_close(found.scores, alone.pred_instances.scores, rtol=1e-4, atol=1e-5)
        assert torch.equal(found.masks, alone.pred_instances.masks)
        segments = [torch.as_tensor(each.pred_panoptic_seg.sem_seg) for each in (together, alone)]
        assert segments[0].shape[-2:] == size and torch.equal(*segments)


def test_a_head_with_other_queries_or_classes_is_refused():
    model = build('mmseg', mode='whole')
    model.decode_head.num_queries = 6
    with pytest.raises(ValueError, match='num_queries=6.*num_queries=5 and num_classes=3'):
        predict(model.eval(), batch('mmseg'), 'mmseg')


def test_a_segmentor_is_exported():
    """One graph for all sizes that are padded to whole patches, without masked attention."""
    model = build('mmseg', mode='whole').eval()
    model.backbone.predictor.mask_probs.zero_()
    raw = RawOutputs(model).eval()
    dynamic = torch.export.Dim.DYNAMIC
    program = torch.export.export(raw, (torch.randn(2, 3, 40, 48),), strict=False, dynamic_shapes=(
        {0: dynamic, 2: dynamic, 3: dynamic},)).module()
    for shape in ((1, 3, 40, 48), (3, 3, 37, 61)):
        x = torch.randn(*shape)
        torch.testing.assert_close(program(x), raw(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('total, starts', [
    (88692, (14782, 29564, 44346, 59128)), (88692, (14782, 36955, 59128)),
    (39120, (6520, 11410, 16300, 21190, 26080))])
def test_masks_are_annealed_as_in_the_releases_configs(total, starts):
    hook = MaskAnnealingHook()
    exact = MaskAnnealingHook(starts=starts, ends=[start + total // 6 for start in starts])
    for iteration in range(0, total, 997):
        torch.testing.assert_close(*(each.probabilities(iteration, total, len(starts))
                                     for each in (hook, exact)), atol=1e-3, rtol=0)


def test_masks_are_annealed():
    """Each block in its part of the training, polynomially; a resumed training goes on there."""
    model = build('mmseg')
    runner, hook = SimpleNamespace(model=model, iter=25, max_iters=100), MaskAnnealingHook()
    probs = model.backbone.predictor.mask_probs
    hook.before_train(runner)
    torch.testing.assert_close(probs, torch.tensor([0.5 ** 0.9, 1.0]))
    for iteration, expected in ((29, [0.2 ** 0.9, 1.0]), (69, [0.0, 0.8 ** 0.9]), (99, [0.0] * 2)):
        runner.iter = iteration
        hook.after_train_iter(runner, 0)
        torch.testing.assert_close(probs, torch.tensor(expected))
    hook, runner.iter = MaskAnnealingHook(power=1.0, starts=(0, 50), ends=(30, 75)), 60
    hook.before_train(runner)
    torch.testing.assert_close(probs, torch.tensor([0.0, 0.6]))
    with pytest.raises(ValueError, match=r'starts=\(0,\) are not those of query_blocks=2'):
        MaskAnnealingHook(starts=(0,), ends=(1,)).before_train(runner)
    for wrong in (dict(starts=[1]), dict(starts=[1, 2], ends=[3]), dict(starts=[3], ends=[3])):
        with pytest.raises(ValueError, match='starts=.* one iteration for each query block'):
            MaskAnnealingHook(**wrong)
    with pytest.raises(ValueError, match='no mmposenc.EoMT'):
        hook.before_train(SimpleNamespace(model=torch.nn.Linear(1, 1)))
