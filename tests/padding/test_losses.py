"""Losses and gradients of padded batches against mmdet's and mmseg's own without padding."""
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import tinyfamilies as families
import torch
from losscases import EMPTY, PAIR, SIZES, assert_close, build, float64, found, padded
from mmdet import models as mm
from mmdet.models.task_modules.samplers import RandomSampler
from mmengine.model.efficient_conv_bn_eval import turn_on_efficient_conv_bn_eval
from mmengine.registry import MODELS, DefaultScope
from mmengine.runner.activation_checkpointing import turn_on_activation_checkpointing
from mmseg.models import CrossEntropyLoss, EncHead, EncoderDecoder, FCNHead
from tinydetr import short

from mmposenc.engine.training.padding_out import KeepPaddingOut
from mmposenc.padding import keep_padding_out, losses


@pytest.fixture(autouse=True)
def wide():
    with float64():
        yield


@pytest.mark.parametrize('name', short([*families.DETECTORS, *families.SEGMENTORS],
                                       'ATSS', 'Faster R-CNN', 'Deformable DETR'))
def test_of_one_size_they_are_the_models_own(name, monkeypatch):
    """Loss and gradients, with a picture without objects; and so, without padding, is what is made
    for several sizes."""
    want = found(build(name), SIZES, EMPTY)
    kept = keep_padding_out(build(name))
    assert_close(found(kept, SIZES, EMPTY, border=32), want)
    monkeypatch.setattr(losses, '_one_size', lambda images: False)
    assert_close(found(kept, SIZES, EMPTY, border=32), want)


@pytest.fixture
def sums(monkeypatch):
    """A function that makes losses sums over cells, boxes and objects: nothing is divided."""
    monkeypatch.setattr(RandomSampler, 'random_choice', lambda self, items, number: items[:number])
    for module in list(sys.modules.values()):
        if getattr(module, '__name__', '').startswith('mmdet.') and hasattr(module, 'reduce_mean'):
            monkeypatch.setattr(module, 'reduce_mean', torch.ones_like)

    def undivided(module, args, named):
        return args, {**named, 'avg_factor': 1.0} if 'avg_factor' in named else named

    def of_all(module, args, named, out):
        return out if 'avg_factor' in named else out * len(args[0])

    def put(model):
        for name, module in model.named_modules():
            if name.rpartition('.')[2].startswith('loss_'):
                module.register_forward_pre_hook(undivided, with_kwargs=True)
                if name.endswith('roi_head.mask_head.loss_mask'):  # a mean over boxes
                    module.register_forward_hook(of_all, with_kwargs=True)
        return model
    return put


def assert_sums(model):
    """Sums over a padded batch are those over its pictures, one by one, without padding."""
    loss, grads = found(model, PAIR, junk=1e3)
    alone = [found(model, [image]) for image in PAIR]
    assert_close((loss, grads), (sum(each[0] for each in alone), {
        key: sum(each[1][key] for each in alone) for key in grads}))


@pytest.mark.parametrize('name', short(
    sorted({*families.DETECTORS} - {'SOLOv2', 'Mask2Former'}), 'FCOS', 'Faster R-CNN', 'DINO'))
def test_of_several_sizes_they_are_sums_over_the_images(name, sums):
    """(What they are divided by is the first test's.)"""
    model = sums(keep_padding_out(build(name)))
    if name == 'DINO':
        model.dn_query_generator.label_noise_scale = 1e-9
        model.dn_query_generator.box_noise_scale = 1e-9
    assert_sums(model)


@pytest.mark.parametrize('name', short(
    ['SOLOv2', 'Mask2Former', *families.SEGMENTORS], 'Mask2Former', 'PSPNet'))
def test_means_of_several_sizes_are_over_the_objects_and_pixels_of_all(name):
    model, factors = keep_padding_out(build(name)), []
    got = padded(model, PAIR, junk=1e3)
    if name in families.DETECTORS:
        head = model.panoptic_head if name == 'Mask2Former' else model.mask_head
        head.loss_cls.register_forward_pre_hook(
            lambda module, args, named: factors.append(named['avg_factor']), with_kwargs=True)
    alone, classes = [], []
    for image in PAIR:
        alone.append(padded(model, [image]))
        classes.append(factors[-1] if factors else image[0] * image[1])
    masks = [number - 1 for number in classes] if name == 'SOLOv2' else [2, 2]
    for key in (key for key in got if 'loss' in key):
        numbers = masks if key.endswith(('loss_mask', 'loss_dice')) else classes
        whole = sum(numbers) - int(name == 'SOLOv2' and numbers is classes)
        want = sum(each[key] * number for each, number in zip(alone, numbers, strict=True)) / whole
        assert got[key].item() == pytest.approx(want.item(), rel=1e-6), key


def with_backbone(**options):
    """A RetinaNet on a ResNet-50 with options."""
    built = families.build('RetinaNet', 'ResNet-50')
    torch.manual_seed(0)
    with DefaultScope.overwrite_default_scope('mmdet'):
        built.backbone = MODELS.build(dict(
            type='ResNet', **families.BACKBONES['ResNet-50'], norm_cfg=dict(type='BN'), **options))
    return keep_padding_out(built).train()


@pytest.mark.parametrize('kind', short(['DCN', 'DCNv2']))
def test_deformable_convolutions_see_zeros_beyond_each_image(kind, sums):
    model = with_backbone(dcn=dict(type=kind, deform_groups=2), norm_eval=True,
                          stage_with_dcn=(False, False, True, True))
    steps = [m.conv_offset for m in model.modules() if hasattr(m, 'conv_offset')]
    assert len(steps) == 9
    for conv in steps:  # steps of several cells, beyond the image too
        torch.nn.init.normal_(conv.weight, std=0.3)
    assert_sums(sums(model))


@pytest.mark.parametrize('how', short(
    ['with_cp', 'activation_checkpointing', 'efficient_conv_bn_eval'], 'activation_checkpointing'))
@pytest.mark.parametrize('norm_eval', [pytest.param(True, marks=pytest.mark.slow), False])
def test_what_is_computed_again_is_kept_out_again(how, norm_eval):
    """By a block's own option, and by mmengine's, which come after the hook."""
    want = found(with_backbone(norm_eval=norm_eval), PAIR, junk=1e3)
    model = with_backbone(norm_eval=norm_eval, with_cp=how == 'with_cp')
    model.train().refuse_training()  # a pass of its own
    calls = []
    model.backbone.layer2[1].conv2.register_forward_hook(lambda *args: calls.append(args))
    if how == 'activation_checkpointing':
        turn_on_activation_checkpointing(model, ['backbone', 'neck'])
    elif how == 'efficient_conv_bn_eval':
        turn_on_efficient_conv_bn_eval(model, 'backbone')
    assert_close(found(model, PAIR, junk=1e3), want)
    assert how == 'efficient_conv_bn_eval' or len(calls) == 2


@pytest.mark.slow
def test_batch_norms_of_a_roi_head_see_the_batch():
    model = keep_padding_out(build('Faster R-CNN'))
    layers = model.roi_head.bbox_head.shared_fcs
    layers.insert(0, torch.nn.BatchNorm1d(layers[0].in_features))
    found(model, PAIR)
    assert layers[0].num_batches_tracked == 1


def refuse(model, **options):
    cfg = dict(activation_checkpointing=options.pop('again', None))
    KeepPaddingOut(**options).before_train(SimpleNamespace(model=model, cfg=cfg))


def test_a_whole_network_that_is_computed_again_is_refused():
    """mmengine's own pass of it has inputs without gradients, and so its weights have none."""
    model = keep_padding_out(build('RetinaNet'))
    for again in ('backbone', ['backbone.layer2', 'neck']):
        with pytest.raises(ValueError, match='activation_checkpointing=.*name its stages'):
            refuse(model, again=again, one_size=True)
    refuse(model, again=['backbone.layer2'], one_size=True)


def bare(cls, **attributes):
    """A module of which nothing was built."""
    made = cls.__new__(cls)
    torch.nn.Module.__init__(made)
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def of_head(cls):
    return bare(mm.SingleStageDetector, bbox_head=bare(cls))


def of_roi_head(cls):
    return bare(mm.TwoStageDetector, roi_head=bare(cls))


@pytest.mark.parametrize(('name', 'model'), [
    # They do not ask which anchors lie in an image, or have a loss of their own.
    *((cls.__name__, of_head(cls)) for cls in (
        mm.FreeAnchorRetinaHead, mm.VFNetHead, mm.YOLOXHead, mm.CondInstBboxHead)),
    ('SOLOHead', bare(mm.SOLO, mask_head=bare(mm.SOLOHead))),
    ('EncHead', bare(EncoderDecoder, decode_head=bare(EncHead, sampler=None))),
    # Means of weighted pixels.
    ('FCNHead', bare(EncoderDecoder, decode_head=bare(
        FCNHead, sampler=None, loss_decode=CrossEntropyLoss(class_weight=[1.0, 2.0])))),
    # They may read maps other than by extractors.
    *((cls.__name__, of_roi_head(cls)) for cls in (
        mm.HybridTaskCascadeRoIHead, mm.PISARoIHead, mm.SparseRoIHead,
        type('Reads', (mm.StandardRoIHead,), {}))),
    # They do more than to hand maps on.
    *((cls.__name__, bare(cls)) for cls in (mm.SoftTeacher, mm.PanopticFPN, mm.DDQDETR)),
    ('DeformableDETR', bare(mm.DeformableDETR, as_two_stage=True))])
def test_losses_without_a_form_are_refused_before_a_run(name, model):
    with pytest.raises(ValueError, match=rf'one_size=False\): the loss of {name} has no form'):
        refuse(model)
    refuse(model, one_size=True)


def test_a_batch_of_several_sizes_is_an_error_then():
    model = keep_padding_out(build('RetinaNet'))
    refuse(model)
    model.bbox_head.__class__ = mm.FreeAnchorRetinaHead
    with pytest.raises(ValueError, match=r'\(97, 122\).*the loss of FreeAnchorRetinaHead has no'):
        found(model, PAIR)


@pytest.mark.slow
def test_two_processes_share_what_mmdet_shares(tmp_path):
    """With as many calls each, whatever their images."""
    tests = Path(__file__).parents[1]
    run = subprocess.run(
        [sys.executable, tests / 'losscases.py', str(tmp_path)], text=True, capture_output=True,
        timeout=300, env={**os.environ, 'PYTHONPATH': str(tests.parent), 'OMP_NUM_THREADS': '1'})
    assert run.returncode == 0, run.stderr[-3000:]
