"""Sizes of images in training and test, and what comes out of a pipeline at other sizes."""
import numpy as np
import pytest
from helpers.tiny_tasks import segmentor_config
from mmengine.config import ConfigDict
from mmengine.dataset import Compose
from mmengine.registry import DATASETS, init_default_scope
from PIL import Image

from mmposenc import engine
from mmposenc.engine.config.image_sizes import size_after
from mmposenc.engine.config.parsed import ParsedConfig
from mmposenc.engine.variants.sizes import config_at_size, config_trained_at_size
from mmposenc.lab.compare.running.costs import input_size

DEIT = 'mmposenc::classification/small/deit-micro-none_1xb32-40e_mnist5k.py'
IMAGENET = 'mmposenc::classification/deit/deit-s_8xb128_in1k.py'
CIFAR = 'mmposenc::classification/context_pool/cp-resnet-44_1xb128_cifar10.py'
CAMVID = 'mmposenc::segmentation/small/fpn_pvt-micro-none_1xb4-10e_camvid-192x256.py'
NUCLEI = 'mmposenc::segmentation/small/fpn_pvt-micro-peg_1xb4-10e_nuclei-128x128.py'
ADE = 'mmposenc::segmentation/sem_fpn/fpn_pvt-t_8xb4-40k_ade20k-512x512.py'
TREES = 'mmposenc::detection/small/retinanet_pvt-micro-peg_fpn_1xb4-12e_trees.py'
BCCD = 'mmposenc::detection/small/retinanet_pvt-micro-peg_fpn_1xb4-12e_bccd.py'
LSJ = 'mmposenc::detection/vitdet/mask-rcnn_vitdet-b_sfp_16xb4-lsj-100e_coco.py'


@pytest.mark.parametrize(('name', 'trained', 'tested', 'one_and_a_half'), [
    (DEIT, (32, 32), (32, 32), (48, 48)),
    (IMAGENET, (224, 224), (224, 224), (336, 336)),
    (CIFAR, (32, 32), None, None),  # the test takes images as they are
    (CAMVID, (192, 256), (192, 256), (288, 384)),
    (NUCLEI, (128, 128), None, None),
    (ADE, (512, 512), (512, 683), (768, 1024)),  # 683: where a limit is far
    (TREES, (320, 320), (400, 400), (600, 600)),
    (BCCD, (240, 320), (240, 320), (360, 480)),  # training draws sizes: the test's
    (LSJ, (1024, 1024), (1024, 1024), (1536, 1536)),
])
def test_sizes_of_configs(name, trained, tested, one_and_a_half):
    cfg = engine.load_config(name)
    before = cfg.to_dict()
    parsed = ParsedConfig(cfg)
    assert (parsed.trained_size, parsed.tested_size) == (trained, tested)
    assert ParsedConfig(config_at_size(cfg, 1.5)).tested_size == one_and_a_half
    assert cfg.to_dict() == before
    assert config_at_size(cfg, 1).to_dict() == before


def run(steps: list, scope: str, **results) -> dict:
    init_default_scope(scope)
    return Compose([dict(step) for step in steps])(results)


@pytest.mark.parametrize('factor', [0.5, 1.0, 1.25])
def test_classification_pipelines_give_the_size(factor, tmp_path):
    Image.fromarray(np.zeros((300, 400, 3), np.uint8)).save(tmp_path / 'a.png')
    steps = config_at_size(engine.load_config(IMAGENET), factor).test_dataloader.dataset.pipeline
    found = run(steps, 'mmpretrain', img_path=str(tmp_path / 'a.png'), gt_label=0)
    assert found['inputs'].shape == (3, 224 * factor, 224 * factor)
    assert steps[1].scale == 256 * factor
    cifar = config_at_size(engine.load_config(CIFAR), factor).test_dataloader.dataset.pipeline
    found = run(cifar, 'mmpretrain', img=np.zeros((32, 32, 3), np.uint8), gt_label=0)
    assert found['inputs'].shape == (3, 32 * factor, 32 * factor)


@pytest.mark.parametrize('steps', [0, 1])
def test_label_maps_stay_at_their_own_size(tmp_path, steps):
    cfg = engine.load_config(str(segmentor_config(tmp_path)))
    pipeline = cfg.test_dataloader.dataset.pipeline
    if steps:
        pipeline.insert(1, ConfigDict(type='Resize', scale=(40, 24), keep_ratio=False))
    init_default_scope('mmseg')
    found = DATASETS.build(config_at_size(cfg, 1.5).test_dataloader.dataset)[0]
    assert found['inputs'].shape[1:] == ((36, 60) if steps else (48, 48))
    sample = found['data_samples']
    assert sample.gt_sem_seg.data.shape[1:] == (32, 32) == sample.ori_shape


def test_boxes_stay_at_their_own_size(tmp_path):
    cfg = engine.load_config(BCCD)
    Image.fromarray(np.zeros((480, 640, 3), np.uint8)).save(tmp_path / 'a.png')
    box = dict(bbox=[10.0, 20.0, 30.0, 60.0], bbox_label=0, ignore_flag=0)
    for changed, size, factor in ((config_at_size(cfg, 0.5), (120, 160), 0.25),
                                  (config_at_size(cfg, 2.0), (480, 640), 1.0)):
        found = run(changed.test_dataloader.dataset.pipeline, 'mmdet',
                    img_path=str(tmp_path / 'a.png'), img_id=0, instances=[dict(box)])
        sample = found['data_samples']
        assert found['inputs'].shape[1:] == size == sample.img_shape
        assert sample.scale_factor == (factor, factor)  # predictions go back by it
        assert sample.gt_instances.bboxes.tensor.tolist() == [box['bbox']]


def test_a_detection_pipeline_without_sizes_gets_one(tmp_path):
    cfg = engine.load_config(BCCD)
    dataset = cfg.test_dataloader.dataset
    dataset.pipeline = [dataset.pipeline[0], dict(
        type='PackDetInputs', meta_keys=('img_id', 'ori_shape', 'img_shape'))]
    load, resize, pack = config_at_size(cfg, 2).test_dataloader.dataset.pipeline
    assert resize == dict(type='Resize', scale_factor=2.0, keep_ratio=True)
    assert 'scale_factor' in pack.meta_keys and 'scale_factor' not in dataset.pipeline[1].meta_keys


def test_wrapped_data_sets_windows_and_canvases():
    cfg = engine.load_config(CAMVID)
    cfg.test_dataloader.dataset = ConfigDict(
        type='ConcatDataset', datasets=[cfg.test_dataloader.dataset] * 2)
    cfg.model.test_cfg = dict(mode='slide', crop_size=(128, 96), stride=(64, 64))
    cfg.model.data_preprocessor.test_cfg = dict(size=(192, 256))
    found = config_at_size(cfg, 0.5)
    for part in found.test_dataloader.dataset.datasets:
        assert part.pipeline[1].scale == (128, 96)
    assert found.model.test_cfg == dict(mode='slide', crop_size=(64, 48), stride=(32, 32))
    assert found.model.data_preprocessor.test_cfg.size == (96, 128)
    assert tuple(found.val_dataloader.dataset.pipeline[1].scale) == (256, 192)
    # ViTDet fills its images up to 1024x1024: the canvas grows with them.
    assert config_at_size(engine.load_config(LSJ),
                          0.5).model.data_preprocessor.pad_size_divisor == 512


def test_views_that_are_shares_of_the_picture():
    cfg = engine.load_config(ADE)
    views = cfg.tta_pipeline[1].transforms
    views[0] = [ConfigDict(type='Resize', scale_factor=share) for share in (0.5, 1.0)]
    before = cfg.to_dict()
    found = config_at_size(cfg, 1.5).tta_pipeline[1].transforms
    assert found[0] == [dict(type='Resize', scale_factor=share) for share in (0.75, 1.5)]
    assert found[1:] == views[1:] and cfg.to_dict() == before


@pytest.mark.parametrize('name, sized', [
    (DEIT, None), (CAMVID, [(160, 96)]), (ADE, [(160, 96)]), (BCCD, [(160, 96)]),
    (IMAGENET, [(183, 110), (160, 96)]),  # what the crop leaves out stays a share of each side
    (NUCLEI, [(160, 96)]), (CIFAR, [(160, 96)]),  # images of their own sizes get a Resize
    (LSJ, [(160, 96)]), ('mmdet::yolox/yolox_s_8xb8-300e_coco.py', [(160, 96)]),
    ('mmdet::faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py', [(160, 96)]),
    ('mmposenc::rt-detr_r18vd-coco', [(160, 96)]), ('mmposenc::detection/pretrained/'
     'eomt_dinov3-s_8xb2-lsj-12e_coco-640x640.py', [(160, 96)])])
def test_every_image_has_the_height_and_width_that_are_asked_for(name, sized, tmp_path):
    """Also where the pipeline keeps the ratio of the sides, or pads to squares."""
    cfg = engine.load_config(name)
    before = cfg.to_dict()
    changed = config_at_size(cfg, '96x160')
    assert ParsedConfig(changed).tested_size == (96, 160) and cfg.to_dict() == before
    if sized is None:
        return
    steps = changed.test_dataloader.dataset.pipeline
    assert [step.get('scale', step.get('crop_size')) for step in steps
            if 'scale' in step or 'crop_size' in step] == sized
    assert not any(step.get('keep_ratio') for step in steps)
    Image.fromarray(np.zeros((300, 400, 3), np.uint8)).save(tmp_path / 'a.png')
    found = run([step for step in steps if 'Annotations' not in step['type']], cfg.default_scope,
                img_path=str(tmp_path / 'a.png'), img_id=0, gt_label=0, instances=[], seg_fields=[],
                reduce_zero_label=False, img=np.zeros((32, 32, 3), np.uint8))
    assert found['inputs'].shape == (3, 96, 160)
    # Where images were padded to a canvas as large as they are, now none is.
    divisor = (changed.model.get('data_preprocessor') or {}).get('pad_size_divisor', 1)
    assert 96 % divisor == 160 % divisor == 0


def test_windows_crops_and_views_at_a_height_and_width():
    cfg = engine.load_config(ADE)
    cfg.tta_pipeline[1].transforms[0] = [
        ConfigDict(type='Resize', scale_factor=share, keep_ratio=True) for share in (0.5, 1.0)]
    cfg.test_dataloader.dataset.pipeline[1] = ConfigDict(type='CenterCrop', crop_size=(200, 100))
    cfg.model.test_cfg = dict(mode='slide', crop_size=(50, 100), stride=(25, 50))
    cfg.model.data_preprocessor.test_cfg = dict(size=(100, 200))
    found = config_at_size(cfg, '200x100')
    resize, crop = found.test_dataloader.dataset.pipeline[1:3]
    assert resize == dict(type='Resize', scale_factor=(0.5, 2.0), keep_ratio=False)
    assert crop.crop_size == (100, 200)
    assert found.model.test_cfg == dict(mode='slide', crop_size=(100, 50), stride=(50, 25))
    assert found.model.data_preprocessor.test_cfg.size == (200, 100)
    assert found.tta_pipeline[1].transforms[0] == [
        dict(type='Resize', scale=size, keep_ratio=False) for size in ((50, 100), (100, 200))]
    efficient = engine.load_config('mmpretrain::efficientnet/efficientnet-b0_8xb32_in1k.py')
    with pytest.raises(ValueError, match='--sizes 96x160: a step .* another height and width'):
        config_at_size(efficient, '96x160')


def test_the_input_of_a_model_at_each_size():
    """Padded by the preprocessor of that size, whose divisor may be a canvas."""
    bccd, canvas = (ParsedConfig(engine.load_config(name)) for name in (BCCD, LSJ))
    assert [input_size(bccd, at) for at in (1.0, 1.5, '100x64')] == [
        (256, 320), (384, 480), (128, 64)]
    assert [input_size(canvas, at) for at in (1.5, '480x864')] == [(1536, 1536), (480, 864)]


@pytest.mark.parametrize('name, size, trained, tested, said', [
    (TREES, 200, (160, 160), (200, 200), 'dataset.dataset.pipeline.3.crop_size=(160, 160)'),
    (CIFAR, 48, (48, 48), None, 'train_dataloader.dataset.pipeline.0.crop_size=48'),
    (CAMVID, '96x128', (96, 128), (96, 128), 'scale=(128, 96)'),
    (DEIT, 48, (48, 48), (48, 48), 'model.backbone.img_size=48'),
    (ADE, 256, (256, 256), (256, 341), 'model.data_preprocessor.size=(256, 256)'),
    ('mmdet::yolox/yolox_s_8xb8-300e_coco.py', 320, (320, 320), (320, 320), 'border=(-160, -160)'),
    ('mmposenc::detection/rt_detr/rt-detr_r18vd_4xb4-72e_coco.py', 320, (320, 320), (320, 320),
     'random_size_range=(240, 400)')])
def test_a_training_at_another_size(name, size, trained, tested, said):
    cfg = engine.load_config(name)
    before = cfg.to_dict()
    changed, lines = config_trained_at_size(cfg, size)
    parsed = ParsedConfig(changed)
    assert (parsed.trained_size, parsed.tested_size) == (trained, tested)
    assert any(each.endswith(said) for each in lines) and cfg.to_dict() == before


@pytest.mark.parametrize('name, size, change, said', [
    (DEIT, 48, list.clear, 'no step of the (config|training) sets a size'),
    (TREES, '96x160', list.copy, 'sizes keep the aspect of the config, 400x400'),
    (TREES, 200, lambda steps: steps.append(dict(type='MyCrop', size=(9, 9))),
     r'pipeline\.\d\.size=\(9, 9\): it is not known how MyCrop changes sizes')])
def test_a_size_that_a_training_cannot_have(name, size, change, said):
    cfg = engine.load_config(name)
    change(ParsedConfig(cfg).data_sets_with_pipeline('train')[0].pipeline)
    with pytest.raises(ValueError, match=f'--size {size}: .*{said}'):
        config_trained_at_size(cfg, size)


@pytest.mark.parametrize('scope, size', [('mmdet', (64, 96)), ('mmseg', (96, 64)),
                                         ('mmpretrain', (96, 64))])
def test_sides_of_a_crop_have_the_order_of_its_library(scope, size) -> None:
    assert size_after([dict(type='RandomCrop', crop_size=(96, 64))], scope) == size
