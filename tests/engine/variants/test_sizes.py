"""Sizes of images in training and test, and what comes out of a pipeline at other sizes."""
import numpy as np
import pytest
from helpers.tiny_tasks import segmentor_config
from mmengine.config import ConfigDict
from mmengine.dataset import Compose
from mmengine.registry import DATASETS, init_default_scope
from PIL import Image

from mmposenc import engine
from mmposenc.engine.config.parsed import ParsedConfig
from mmposenc.engine.variants.sizes import config_at_size, factor_of

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


def test_sizes_in_pixels_are_factors_where_the_ratio_is_that_of_the_test():
    camvid = ParsedConfig(engine.load_config(CAMVID))
    assert [factor_of(camvid, each) for each in (0.75, (288, 384), (192, 256))] == [0.75, 1.5, 1]
    with pytest.raises(ValueError, match='--sizes 320x480: .* 192x256; 320x427 would do'):
        factor_of(camvid, (320, 480))
    with pytest.raises(ValueError, match='--sizes 64x64: .*several sizes; give multiples'):
        factor_of(ParsedConfig(engine.load_config(NUCLEI)), (64, 64))
