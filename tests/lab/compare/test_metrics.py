"""The number by which a test is summed up."""
import pytest

from mmposenc import engine
from mmposenc.lab.compare.study.metrics import Metric, metric_of_config, value_of_test

DEIT = 'mmposenc::classification/small/deit-micro-none_1xb32-40e_mnist5k.py'
CAMVID = 'mmposenc::segmentation/small/fpn_pvt-micro-none_1xb4-10e_camvid-192x256.py'
BCCD = 'mmposenc::detection/small/retinanet_pvt-micro-peg_fpn_1xb4-12e_bccd.py'
MASKS = 'mmposenc::detection/mask2former/mask2former_r50_8xb2-lsj-50e_coco.py'
IMAGENET = 'mmposenc::classification/deit/deit-s_8xb128_in1k.py'


@pytest.mark.parametrize(('name', 'metric'), [
    (DEIT, Metric('accuracy/top1', 'top-1 accuracy', '%')),
    (IMAGENET, Metric('accuracy/top1', 'top-1 accuracy', '%')),
    (CAMVID, Metric('mIoU', 'mIoU', '%')),
    (BCCD, Metric('coco/bbox_mAP', 'AP of boxes')),
])
def test_metric(name, metric):
    cfg = engine.load_config(name)
    assert metric_of_config(cfg) == metric


def test_masks_and_prefixes():
    cfg = engine.load_config(MASKS)
    cfg.test_evaluator = dict(type='CocoMetric', metric='segm', prefix='mine')
    assert metric_of_config(cfg) == Metric('mine/segm_mAP', 'AP of masks')
    cfg.test_evaluator.metric = ['segm', 'bbox']
    assert metric_of_config(cfg).name == 'mine/bbox_mAP'


def test_the_value_of_a_test():
    cfg = engine.load_config(BCCD)
    metric = metric_of_config(cfg)
    assert value_of_test(cfg, metric, {'coco/bbox_mAP': 0.5, 'coco/bbox_mAP_s': -1.0}) == 0.5
    assert value_of_test(cfg, metric, {}) == 0.0  # not a single box


def test_what_cannot_be_compared_is_named():
    cfg = engine.load_config(DEIT)
    with pytest.raises(ValueError, match="gave no 'accuracy/top1'; it gave mIoU"):
        value_of_test(cfg, metric_of_config(cfg), {'mIoU': 1})
    cfg.test_evaluator = dict(type='ConfusionMatrix')
    with pytest.raises(ValueError, match="type='ConfusionMatrix': which of its numbers"):
        metric_of_config(cfg)
    cfg.pop('test_dataloader')
    with pytest.raises(ValueError, match=r'no test_dataloader .*\(test_dataloader = val_datal'):
        metric_of_config(cfg)
