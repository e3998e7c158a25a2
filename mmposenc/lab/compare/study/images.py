"""What a test gives for each image, kept beside the run: of accuracy, mIoU and AP of boxes."""
from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from mmengine.config import Config
from mmengine.evaluator import BaseMetric

from mmposenc.engine.config.nodes import bare_type, listed
from mmposenc.registry import METRICS

from ..statistics.images import Boxes, Shares, resampled
from .metrics import IOU, boxes_or_masks
from .study import Run

#: mmseg's label of pixels that do not count.
_IGNORED = 255


def images_file(run: Run, factor: float) -> Path:
    """Where a run keeps what its test at a size gave for each image."""
    return run.folder / f'images_{factor:g}.npz'


def keep_images(cfg: Config, file: Path) -> None:
    """Lets the test of a config write the results of each image, where its metric is accuracy, mIoU
    or AP of boxes; changes ``cfg``."""
    first = listed(cfg.test_evaluator)[0]
    given: dict[str, Any] = {}
    if bare_type(first) == 'Accuracy':
        given = dict(topk=min(listed(first.get('topk', 1))))
    elif bare_type(first) in IOU:
        given = dict(ignore_index=first.get('ignore_index', _IGNORED))
    elif (bare_type(first) == 'CocoMetric' and boxes_or_masks(first) == 'bbox'
          and first.get('ann_file') and not first.get('iou_thrs')):
        given = dict(ann_file=first['ann_file'])
    if given:
        cfg.test_evaluator = [*listed(cfg.test_evaluator), dict(
            type='mmposenc.ImageResults', file=str(file), **given)]


class Images(NamedTuple):
    """What a run's test is worth by the results of each image: how many there are, the metric of
    all of them, and of those that were drawn."""

    number: int
    value: float
    drawn: np.ndarray


def read_images(file: Path) -> Images | None:
    """What :class:`ImageResults` wrote; None where there is no file."""
    if not file.is_file():
        return None
    with np.load(file) as held:
        if 'drawn' in held:
            return Images(int(held['number']), float(held['value']), held['drawn'])
        both = held['both'].astype(float)  # of an earlier version
        either = held['either'].astype(float) if 'either' in held else np.ones_like(both)
    return images_of(Shares(both, either), len(both))


def images_of(metric: Shares | Boxes, number: int) -> Images:
    """The metric of all images, and resampled."""
    return Images(number, float(metric(np.ones((1, number)))[0]), resampled(metric, number))


@METRICS.register_module()
class ImageResults(BaseMetric):
    """Writes the results of each test image to a file; has no number of its own.

    Args:
        file: an .npz of the fields of :class:`~..statistics.images.Shares` or
            :class:`~..statistics.images.Boxes`, in the data set's order, and of :class:`Images`.
        topk: the label must be among so many highest scores.
        ann_file: COCO's, for AP in place of ``topk``.
        ignore_index: mmseg's, for mIoU in place of both.
    """

    def __init__(self, file: str, topk: int | None = None, ann_file: str | None = None,
                 ignore_index: int = _IGNORED, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.file, self.topk, self.ignore_index = Path(file), topk, ignore_index
        self.ann_file = ann_file

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Adds the results of each image."""
        one = self._right if self.topk else self._boxes if self.ann_file else self._areas
        self.results += [one(each) for each in data_samples]

    def _right(self, sample: dict) -> tuple[np.ndarray, np.ndarray]:
        best = sample['pred_score'].topk(self.topk)[1] if 'pred_score' in sample \
            else sample['pred_label']
        return np.array([bool(torch.isin(sample['gt_label'], best).any())]), np.ones(1, bool)

    def _boxes(self, sample: dict) -> tuple[int, np.ndarray]:
        """The id of the image, and left, top, right, bottom, score and label of its boxes."""
        found = sample['pred_instances']
        return sample['img_id'], torch.cat([found['bboxes'], found['scores'][:, None], found[
            'labels'][:, None]], 1).cpu().numpy()

    def _areas(self, sample: dict) -> tuple[np.ndarray, np.ndarray]:
        from mmseg.evaluation import IoUMetric
        predicted = sample['pred_sem_seg']['data'].squeeze()
        label = sample['gt_sem_seg']['data'].squeeze().to(predicted)
        both, either, *_ = IoUMetric.intersect_and_union(
            predicted, label, len(self.dataset_meta['classes']), self.ignore_index)
        return both.numpy().astype(np.int32), either.numpy().astype(np.int32)

    def compute_metrics(self, results: list[Any]) -> dict[str, float]:
        """Writes the file, whole or not at all."""
        metric: Shares | Boxes = (
            matched(self.ann_file, self.dataset_meta['classes'], dict(results)) if self.ann_file
            else Shares(*map(np.stack, zip(*results, strict=True))))
        partial = self.file.with_name(f'{self.file.name}.{os.getpid()}.partial')
        with open(partial, 'wb') as file:
            np.savez_compressed(file, **vars(metric),
                                **images_of(metric, len(results))._asdict())
        os.replace(partial, self.file)
        return {}


def matched(ann_file: str, classes: Sequence[str], found: dict[int, np.ndarray]) -> Boxes:
    """Which of the boxes that were found in each image are right, by pycocotools.

    Args:
        ann_file: of COCO's format.
        classes: names by label.
        found: what :meth:`ImageResults._boxes` gives, by image.
    """
    from mmdet.datasets.api_wrappers import COCO, COCOeval
    with open(os.devnull, 'w') as nowhere, redirect_stdout(nowhere):
        truth = COCO(ann_file)
        categories = truth.get_cat_ids(cat_names=classes)
        boxes = [dict(image_id=image, category_id=categories[int(label)], score=score,
                      bbox=[left, top, right - left, bottom - top]) for image, own in found.items()
                 for left, top, right, bottom, score, label in own.tolist()]
        judge = COCOeval(truth, truth.loadRes(boxes) if boxes else COCO(), 'bbox')
        judge.params.imgIds, judge.params.catIds = list(found), categories
        judge.params.areaRng, judge.params.maxDets = judge.params.areaRng[:1], [100]
        judge.evaluate()
    # COCO sorts images by their ids.
    order = {image: place for place, image in enumerate(found)}
    truths = np.zeros((len(found), len(categories)), int)
    parts: list[tuple[np.ndarray, ...]] = []
    for each in filter(None, judge.evalImgs):
        place = order[each['image_id']], categories.index(each['category_id'])
        truths[place] = np.count_nonzero(each['gtIgnore'] == 0)
        scores = np.array(each['dtScores'])
        parts.append((*(np.full(len(scores), index) for index in place), scores,
                      each['dtMatches'].T > 0, each['dtIgnore'].T.astype(bool)))
    if not parts:
        overlaps = len(judge.params.iouThrs)
        parts = [(*np.zeros((2, 0), int), np.zeros(0), *np.zeros((2, 0, overlaps), bool))]
    image, label, score, hit, ignored = map(np.concatenate, zip(*parts, strict=True))
    return Boxes(image, label, score, hit, ignored, truths)
