"""What a comparison reads from a config: its length, and the number that sums up a test."""
import pytest
from mmengine.config import Config

from mmposenc import engine
from mmposenc.engine.config.parsed import ParsedConfig
from mmposenc.lab.compare.statistics.results import Metric
from mmposenc.lab.compare.study.config import StudyConfig, metric_of_config, value_of_test

DEIT = 'mmposenc::classification/small/deit-micro-none_1xb32-40e_mnist5k.py'
CAMVID = 'mmposenc::segmentation/small/fpn_pvt-micro-none_1xb4-10e_camvid-192x256.py'
BCCD = 'mmposenc::detection/small/retinanet_pvt-micro-peg_fpn_1xb4-12e_bccd.py'
MASKS = 'mmposenc::detection/mask2former/mask2former_r50_8xb2-lsj-50e_coco.py'


@pytest.mark.parametrize('name, changes, metric', [
    (DEIT, {}, Metric('accuracy/top1', 'top-1 accuracy', '%')),
    (CAMVID, {}, Metric('mIoU', 'mIoU', '%')),
    (BCCD, {}, Metric('coco/bbox_mAP', 'AP of boxes')),
    (MASKS, dict(metric='segm', prefix='mine'), Metric('mine/segm_mAP', 'AP of masks')),
    (MASKS, dict(metric=['segm', 'bbox'], prefix='mine'), Metric('mine/bbox_mAP', 'AP of boxes'))])
def test_the_number_that_sums_up_a_test(name, changes, metric):
    cfg = engine.load_config(name)
    if changes:
        cfg.test_evaluator = dict(type='CocoMetric', **changes)
    assert metric_of_config(ParsedConfig(cfg)) == metric


def test_the_value_of_a_test():
    base = StudyConfig(engine.load_config(BCCD))
    assert value_of_test(base, {'coco/bbox_mAP': 0.5, 'coco/bbox_mAP_s': -1.0}) == 0.5
    assert value_of_test(base, {}) == 0.0  # not a single box


def test_what_cannot_be_compared_is_named():
    cfg = engine.load_config(DEIT)
    with pytest.raises(ValueError, match="gave no 'accuracy/top1'; it gave mIoU"):
        value_of_test(StudyConfig(cfg), {'mIoU': 1})
    cfg.test_evaluator = dict(type='ConfusionMatrix')
    with pytest.raises(ValueError, match="type='ConfusionMatrix': .* which of its numbers"):
        metric_of_config(ParsedConfig(cfg))
    cfg.pop('test_dataloader')
    with pytest.raises(ValueError, match=r'no test_dataloader .*\(test_dataloader = val_datal'):
        metric_of_config(ParsedConfig(cfg))


@pytest.mark.parametrize('loop, length', [
    (dict(type='EpochBasedTrainLoop', max_epochs=40), (40, 'epochs')),
    (dict(by_epoch=True, max_epochs=2), (2, 'epochs')),
    (dict(type='mmengine.IterBasedTrainLoop', max_iters=8000), (8000, 'iterations')),
    (dict(by_epoch=True), 'train_cfg.max_epochs=None'),
    (dict(type='IterBasedTrainLoop', max_iters=0), 'train_cfg.max_iters=0: it must say')])
def test_how_long_a_config_trains(loop, length):
    parsed = ParsedConfig(Config(dict(train_cfg=loop)))
    if isinstance(length, tuple):
        assert parsed.length == length
    else:
        with pytest.raises(ValueError, match=length):
            assert parsed.length
