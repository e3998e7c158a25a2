"""What a test is summed up by, by class and by object size, against counts by hand."""
import json

import pytest
import torch
from mmengine.config import Config
from mmengine.evaluator import Evaluator
from mmengine.registry import init_default_scope

from mmposenc import engine
from mmposenc.lab.compare.study.metrics import (
    Metric,
    config_with_details,
    metric_of_config,
    value_and_details,
)

DEIT = 'mmposenc::classification/small/deit-micro-none_1xb32-40e_mnist5k.py'
CAMVID = 'mmposenc::segmentation/small/fpn_pvt-micro-none_1xb4-10e_camvid-192x256.py'
BCCD = 'mmposenc::detection/small/retinanet_pvt-micro-peg_fpn_1xb4-12e_bccd.py'
MASKS = 'mmposenc::detection/mask2former/mask2former_r50_8xb2-lsj-50e_coco.py'
IMAGENET = 'mmposenc::classification/deit/deit-s_8xb128_in1k.py'


def evaluate(cfg: Config, samples: list, classes: list[str]) -> dict:
    init_default_scope(cfg.default_scope)
    evaluator = Evaluator(cfg.test_evaluator)
    evaluator.dataset_meta = dict(classes=tuple(classes))
    evaluator.process(samples, None)
    return evaluator.evaluate(len(samples))


@pytest.mark.parametrize(('name', 'metric'), [
    (DEIT, Metric('accuracy/top1', 'top-1 accuracy', '%')),
    (IMAGENET, Metric('accuracy/top1', 'top-1 accuracy', '%')),
    (CAMVID, Metric('mIoU', 'mIoU', '%')),
    (BCCD, Metric('coco/bbox_mAP', 'AP of boxes')),
])
def test_metric(name, metric):
    cfg = engine.load_config(name)
    assert metric_of_config(cfg) == metric
    assert metric_of_config(config_with_details(cfg)) == metric


def test_masks_and_prefixes():
    cfg = engine.load_config(MASKS)
    cfg.test_evaluator = dict(type='CocoMetric', metric='segm', prefix='mine')
    assert metric_of_config(cfg) == Metric('mine/segm_mAP', 'AP of masks')
    cfg.test_evaluator.metric = ['segm', 'bbox']
    assert metric_of_config(cfg).name == 'mine/bbox_mAP'
    assert config_with_details(cfg).test_evaluator[0]['metric'] == 'bbox'


def test_recall_by_class():
    from mmpretrain.structures import DataSample
    cfg = engine.load_config(DEIT)
    labels = torch.tensor([0, 0, 0, 1, 1, 3])
    scores = torch.eye(10)[torch.tensor([0, 0, 1, 1, 1, 0])]
    samples = [DataSample().set_gt_label(int(label)).set_pred_score(score).set_pred_label(
        score.argmax()).to_dict() for label, score in zip(labels, scores, strict=True)]
    found = evaluate(config_with_details(cfg), samples, [])
    value, by_class, by_size = value_and_details(cfg, metric_of_config(cfg), found)
    assert value == pytest.approx(100 * 4 / 6) and by_size == {}
    names = list(by_class)
    assert len(names) == 3 and '3' in names[2]  # 2 and 4 to 9 do not occur
    assert list(by_class.values()) == pytest.approx([100 * 2 / 3, 100, 0])


def test_iou_by_class():
    cfg = engine.load_config(CAMVID)
    classes = list(cfg.test_dataloader.dataset.metainfo.classes)
    truth, guess = torch.tensor([[[0, 0, 1, 1, 2, 255]]]), torch.tensor([[[0, 1, 1, 1, 1, 0]]])
    found = evaluate(config_with_details(cfg), [
        dict(gt_sem_seg=dict(data=truth), pred_sem_seg=dict(data=guess))] * 2, classes)
    value, by_class, _ = value_and_details(cfg, metric_of_config(cfg), found)
    # 1 pixel of 2, 2 of 4, none of 1; 255 is ignored; other classes do not occur.
    assert by_class == pytest.approx({classes[0]: 50, classes[1]: 50, classes[2]: 0})
    assert value == pytest.approx(100 / 3, abs=0.01)  # rounded by mmseg


def test_ap_by_class_and_by_size_of_boxes(tmp_path):
    cfg = engine.load_config(BCCD)
    # RBC is found everywhere, of the two WBC one, Platelets do not occur; 20x20 pixels are small,
    # 50x50 medium, 100x100 large.
    # Image, category, x, y and side of each box, of which the last is not found.
    boxes = [(1, 1, 10, 10, 20), (1, 1, 10, 130, 50), (2, 1, 10, 250, 50), (2, 2, 10, 370, 100),
             (1, 2, 200, 200, 100)]
    names = ['RBC', 'WBC', 'Platelets']
    cfg.test_evaluator.ann_file = str(tmp_path / 'val.json')
    (tmp_path / 'val.json').write_text(json.dumps(dict(
        images=[dict(id=i, width=640, height=640, file_name=f'{i}.jpg') for i in (1, 2)],
        annotations=[dict(id=i, image_id=image, category_id=category, bbox=[x, y, side, side],
                          area=side ** 2, iscrowd=0)
                     for i, (image, category, x, y, side) in enumerate(boxes, 1)],
        categories=[dict(id=i, name=name) for i, name in enumerate(names, 1)])))
    samples = []
    for image in (1, 2):
        own = [box for box in boxes[:-1] if box[0] == image]
        samples.append(dict(img_id=image, ori_shape=(640, 640), pred_instances=dict(
            bboxes=torch.tensor([[x, y, x + side, y + side] for *_, x, y, side in own]).float(),
            labels=torch.tensor([category - 1 for _, category, *_ in own]),
            scores=torch.ones(len(own)))))
    found = evaluate(config_with_details(cfg), samples, names)
    value, by_class, by_size = value_and_details(cfg, metric_of_config(cfg), found)
    half = 51 / 101  # COCO reads precision at 101 recalls, 51 of which are at most a half
    assert by_class == pytest.approx(dict(RBC=1, WBC=half), abs=1e-3)
    assert value == pytest.approx((1 + half) / 2, abs=1e-3)
    assert by_size == pytest.approx(dict(small=1, medium=1, large=half), abs=1e-3)


def test_classes_that_no_box_has_are_left_out():
    cfg = engine.load_config(BCCD)
    assert value_and_details(cfg, metric_of_config(cfg), {
        'coco/bbox_mAP': 0.5, 'coco/RBC_precision': 0.5, 'coco/WBC_precision': float('nan'),
        'coco/bbox_mAP_s': -1.0, 'coco/bbox_mAP_l': 0.25}) == (
            0.5, {'RBC': 0.5}, {'large': 0.25})
    assert value_and_details(cfg, metric_of_config(cfg), {}) == (0.0, {}, {})  # not a single box


def test_what_cannot_be_compared_is_named():
    cfg = engine.load_config(DEIT)
    with pytest.raises(ValueError, match="gave no 'accuracy/top1'; it gave mIoU"):
        value_and_details(cfg, metric_of_config(cfg), {'mIoU': 1})
    cfg.test_evaluator = dict(type='ConfusionMatrix')
    with pytest.raises(ValueError, match="type='ConfusionMatrix': which of its numbers"):
        metric_of_config(cfg)
    cfg.pop('test_dataloader')
    with pytest.raises(ValueError, match=r'no test_dataloader .*\(test_dataloader = val_datal'):
        metric_of_config(cfg)
