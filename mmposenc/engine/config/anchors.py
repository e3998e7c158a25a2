"""Says which boxes of a data set the anchors of a config cannot match."""
from __future__ import annotations

import numpy as np

from mmposenc.openmmlab.datasets.coco_files import Coco

from .image_sizes import sides_of_scale
from .nodes import type_without_library, value_at
from .parsed import ParsedConfig

#: From this share of boxes on, another config is advised.
_MANY = 0.1


def unmatched_boxes_text(parsed: ParsedConfig, content: Coco) -> str:
    """A line about the share of boxes that no anchor overlaps as far as the assigner asks for; ''
    for a detector without anchors, or with another assigner than mmdet's MaxIoUAssigner.

    Args:
        parsed: the config of a detector; boxes are scaled as its test scales images.
        content: the content of the training's file, as :func:`.coco_files.read_coco` gives it.
    """
    for head, key in ('rpn_head', 'train_cfg.rpn.assigner'), ('bbox_head', 'train_cfg.assigner'):
        described = value_at(parsed.model, f'{head}.anchor_generator')
        assigner = value_at(parsed.model, key)
        if described and assigner and type_without_library(assigner) == 'MaxIoUAssigner':
            break
    else:
        return ''
    least = np.max(assigner['neg_iou_thr'])
    overlaps = _best_overlaps(parsed, described, content)
    if not overlaps.size:
        return ''
    share = (overlaps < least).mean()
    return (f'anchors: {share:.0%} of the training boxes overlap none by {least:g} (neg_iou_thr)'
            + (f', and are learned badly; set model.{head}.anchor_generator, or take '
               'mmposenc::retinanet-pvt-peg-mine, which has more shapes' if share > _MANY else ''))


def box_sizes(content: Coco) -> tuple[np.ndarray, np.ndarray]:
    """The width and height of each box (N, 2), and those of its picture (N, 2)."""
    images = {each['id']: (each['width'], each['height']) for each in content['images']}
    anns = [ann for ann in content['annotations'] if not ann.get('iscrowd')]
    return (np.array([ann['bbox'][2:] for ann in anns], float).reshape(-1, 2),
            np.array([images[ann['image_id']] for ann in anns], float).reshape(-1, 2))


def _best_overlaps(parsed: ParsedConfig, described: dict, content: Coco) -> np.ndarray:
    """For each box the largest IoU (intersection over union) with an anchor of the same centre."""
    from mmdet.registry import TASK_UTILS
    corners = np.concatenate([each.numpy() for each in TASK_UTILS.build(described).base_anchors])
    boxes, image = box_sizes(content)
    for step in parsed.pipeline('test'):
        if type_without_library(step) == 'Resize' and step.get('scale'):
            sides = sides_of_scale(step['scale'])
            factors = np.array(sides) / image
            if step.get('keep_ratio'):
                longest, shortest = max(sides) / image.max(1), min(sides) / image.min(1)
                factors = np.minimum(longest, shortest)[:, None]
            boxes, image = boxes * factors, image * factors
    best = np.zeros(len(boxes))
    for anchor in corners[:, 2:] - corners[:, :2]:
        common = np.minimum(boxes, anchor).prod(1)
        best = np.maximum(best, common / (boxes.prod(1) + anchor.prod() - common))
    return best
