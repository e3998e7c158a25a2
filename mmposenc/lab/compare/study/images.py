"""What a test gives for each image: kept beside the run, to resample the test images.

Accuracy and mIoU are kept. Both are a mean over columns of sums of one array over sums of another:
pixels in the intersection and in the union of each class, or right answers and answers.
"""
from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.evaluator import BaseMetric

from mmposenc.engine.config.nodes import bare_type, listed
from mmposenc.registry import METRICS

from .metrics import IOU
from .study import Run

#: mmseg's label of pixels that do not count.
_IGNORED = 255


def images_file(run: Run, factor: float) -> Path:
    """Where a run keeps what its test at a size gave for each image."""
    return run.folder / f'images_{factor:g}.npz'


def keep_images(cfg: Config, file: Path) -> None:
    """Lets the test of a config write the results of each image, where its metric is accuracy or
    mIoU; changes ``cfg``."""
    first = listed(cfg.test_evaluator)[0]
    given: dict[str, Any] = {}
    if bare_type(first) == 'Accuracy':
        given = dict(topk=min(listed(first.get('topk', 1))))
    elif bare_type(first) in IOU:
        given = dict(ignore_index=first.get('ignore_index', _IGNORED))
    if given:
        cfg.test_evaluator = [*listed(cfg.test_evaluator), dict(
            type='mmposenc.ImageResults', file=str(file), **given)]


def read_images(file: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """(images, columns) of the numerators and of the denominators; None where there is no file."""
    if not file.is_file():
        return None
    with np.load(file) as held:
        both = held['both'].astype(float)
        return both, held['either'].astype(float) if 'either' in held else np.ones_like(both)


@METRICS.register_module()
class ImageResults(BaseMetric):
    """Writes the results of each test image to a file; has no number of its own.

    Args:
        file: an .npz of ``both`` and, for mIoU, ``either`` (images, classes), in the data set's
            order.
        topk: the label must be among so many highest scores.
        ignore_index: mmseg's, for mIoU in place of ``topk``.
    """

    def __init__(self, file: str, topk: int | None = None, ignore_index: int = _IGNORED,
                 **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.file, self.topk, self.ignore_index = Path(file), topk, ignore_index

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Adds (both, either) of each image."""
        self.results += [self._right(each) if self.topk else self._areas(each)
                         for each in data_samples]

    def _right(self, sample: dict) -> tuple[np.ndarray, np.ndarray | None]:
        best = sample['pred_score'].topk(self.topk)[1] if 'pred_score' in sample \
            else sample['pred_label']
        return np.array([bool(torch.isin(sample['gt_label'], best).any())]), None

    def _areas(self, sample: dict) -> tuple[np.ndarray, np.ndarray | None]:
        from mmseg.evaluation import IoUMetric
        predicted = sample['pred_sem_seg']['data'].squeeze()
        label = sample['gt_sem_seg']['data'].squeeze().to(predicted)
        both, either, *_ = IoUMetric.intersect_and_union(
            predicted, label, len(self.dataset_meta['classes']), self.ignore_index)
        return both.numpy().astype(np.int32), either.numpy().astype(np.int32)

    def compute_metrics(self, results: list[Any]) -> dict[str, float]:
        """Writes the file, whole or not at all."""
        both, either = zip(*results, strict=True)
        held: dict[str, Any] = dict(both=np.stack(both))
        if either[0] is not None:
            held['either'] = np.stack(either)
        partial = self.file.with_name(f'{self.file.name}.{os.getpid()}.partial')
        with open(partial, 'wb') as file:
            np.savez_compressed(file, **held)
        os.replace(partial, self.file)
        return {}
