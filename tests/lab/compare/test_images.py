"""The number of a test without some images is that of a test of the others."""
import json

import numpy as np
from helpers import tiny_detr  # noqa: F401  (it lets mmdet import)
from mmdet.evaluation import CocoMetric

from mmposenc.lab.compare.running import images as images_module
from mmposenc.lab.compare.running.images import GROUPS, also_without_images


def test_numbers_without_images_are_those_of_files_without_them(tmp_path, monkeypatch):
    noise, count = np.random.default_rng(0), 30
    corners = noise.uniform(0, 20, (count, 3, 2))
    boxes = np.concatenate((corners, corners + noise.uniform(5, 20, (count, 3, 2))), 2)
    seen = [dict(img_id=index, bboxes=each + noise.normal(0, 1, (3, 4)),
                 scores=noise.uniform(size=3), labels=np.zeros(3, int))
            for index, each in enumerate(boxes)]

    def metric_of(images):
        (tmp_path / 'boxes.json').write_text(json.dumps(dict(
            images=[dict(id=index, width=64, height=64) for index in images],
            categories=[dict(id=0, name='cell')], annotations=[dict(
                id=3 * index + number + 1, image_id=index, category_id=0, iscrowd=0,
                bbox=[x0, y0, x1 - x0, y1 - y0], area=(x1 - x0) * (y1 - y0))
                for index in images for number, (x0, y0, x1, y1) in enumerate(
                    boxes[index].tolist())])))
        metric = CocoMetric(str(tmp_path / 'boxes.json'))
        metric.dataset_meta = dict(classes=('cell',))
        return metric

    metric, results = metric_of(range(count)), [(dict(), each) for each in seen]
    left = also_without_images(metric, 'coco/bbox_mAP')
    whole = metric.compute_metrics(results)
    for group, value in enumerate(left):
        images = [index for index in range(count) if index * GROUPS // count != group]
        others = metric_of(images).compute_metrics([results[index] for index in images])
        assert others['bbox_mAP'] == value
    assert len(left) == GROUPS and len(set(left)) > 1
    monkeypatch.setattr(images_module, 'MOST_IMAGES', count - 1)
    left.clear()
    assert metric.compute_metrics(results) == whole and not left
