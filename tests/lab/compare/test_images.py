"""The number of a test without some images is that of a test of the others."""
import json

import numpy as np
import pytest
import torch
from helpers import tiny_detr  # noqa: F401  (it lets mmdet import)
from mmdet.evaluation import CocoMetric
from mmseg.evaluation import IoUMetric

from mmposenc.lab.compare.running.images import GROUPS, also_without_images


def boxes(count, noise):
    corners = noise.uniform(0, 20, (count, 2))
    return np.concatenate((corners, corners + noise.uniform(5, 20, (count, 2))), 1)


def detections(tmp_path, noise):
    """Twelve images: the file of a part of them, and what is predicted in it."""
    truth = [boxes(3, noise) for _ in range(12)]
    seen = [dict(img_id=index, bboxes=each + noise.normal(0, 1, each.shape),
                 scores=noise.uniform(size=3), labels=np.zeros(3, int))
            for index, each in enumerate(truth)]

    def part(of):
        path = tmp_path / f'{len(of)}-{of[0]}.json'
        path.write_text(json.dumps(dict(
            images=[dict(id=index, width=64, height=64) for index in of],
            categories=[dict(id=0, name='cell')], annotations=[dict(
                id=3 * index + number + 1, image_id=index, category_id=0, iscrowd=0,
                bbox=[*box[:2].tolist(), *(box[2:] - box[:2]).tolist()],
                area=float(np.prod(box[2:] - box[:2])))
                for index in of for number, box in enumerate(truth[index])])))
        metric = CocoMetric(str(path))
        metric.dataset_meta = dict(classes=('cell',))
        return metric, [(dict(), seen[index]) for index in of]
    return part, 'coco/bbox_mAP', 12


def masks(tmp_path, noise):
    """Thirty images, in groups of one and of two."""
    areas = [tuple(torch.as_tensor(noise.integers(1, 50, 4)) for _ in range(4)) for _ in range(30)]

    def part(of):
        metric = IoUMetric()
        metric.dataset_meta = dict(classes=('a', 'b', 'c', 'd'))
        return metric, [areas[index] for index in of]
    return part, 'mIoU', 30


@pytest.mark.parametrize('task', [detections, masks])
def test_numbers_without_images(tmp_path, task):
    part, name, count = task(tmp_path, np.random.default_rng(0))
    metric, results = part(range(count))
    left = also_without_images(metric, name)
    whole = metric.compute_metrics(results)
    key, groups = name.rpartition('/')[2], min(GROUPS, count)
    for group, value in enumerate(left):
        of = [index for index in range(count) if index * groups // count != group]
        other, its = part(of)
        assert other.compute_metrics(its)[key] == value
    assert len(left) == groups and len(set(left)) > 1
    assert metric.compute_metrics(results) == whole
