"""Predictions as JSON; names and colours of their labels."""
from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.structures import BaseDataElement, InstanceData
from torch import Tensor

from mmposenc.checkpoint.integrity import put_in_place

from ...config_types import ReadOnlyConfig
from ..config.nodes import data_sets, heads_of, metainfo_of
from ..config.testing import scope_of

#: What JSON says of a picture, or of an object in it.
Record = dict[str, Any]


def class_names(cfg: Config, meta: ReadOnlyConfig) -> list[str]:
    """Names by label: those of the config's test data, else of its type, else of the checkpoint.

    Args:
        cfg: the whole config.
        meta: what a checkpoint says of itself; trainings leave the classes of their data in it.

    Returns:
        As many as the model has classes; those that nothing names are 'class 7'.

    Raises:
        ValueError: the config has no test data.
    """
    if not (cfg.get('test_dataloader') or {}).get('dataset'):
        raise ValueError('the config has no test_dataloader.dataset, whose pipeline says how '
                         'pictures are read')
    listed = _of_test_data(cfg, 'classes') or (meta.get('dataset_meta') or {}).get('classes') or ()
    names = [str(name) for name in listed]
    number = max([len(names), *(head['num_classes'] for _, head in heads_of(cfg)
                                if head.get('num_classes') is not None)])
    return names + [f'class {i}' for i in range(len(names), number)]


def palette(cfg: Config, names: list[str]) -> list[tuple[int, int, int]]:
    """An RGB colour a class: the test data's, else the same random ones each time."""
    configured = [tuple(colour) for colour in _of_test_data(cfg, 'palette') or ()]
    random = np.random.default_rng(42).integers(0, 256, (len(names), 3)).tolist()
    return configured if len(configured) == len(names) else [tuple(colour) for colour in random]


def _of_test_data(cfg: Config, key: str) -> Sequence[Any] | None:
    """An entry of the first test data set's metainfo that has it, or of its type's."""
    for _, node in data_sets(cfg, 'test'):
        if value := metainfo_of(node, scope_of(cfg), key):
            return value
    return None


#: Classes of a classifier that are listed.
TOP = 5


def record_of(scope: str, sample: BaseDataElement, classes: Sequence[str], score_thr: float
              ) -> tuple[Record, np.ndarray | None]:
    """The JSON of one prediction, and its label map in segmentation.

    Args:
        scope: 'mmdet', 'mmseg' or 'mmpretrain'.
        sample: the model's, on the CPU.
        classes: names by label.
        score_thr: boxes must score more.

    Raises:
        ValueError: the model predicts none of boxes, label map and classes.
    """
    if scope == 'mmdet' and 'pred_instances' in sample:
        return {'objects': _objects(sample.pred_instances, classes, score_thr)}, None
    if scope == 'mmseg' and 'pred_sem_seg' in sample:
        labels = sample.pred_sem_seg.data[0].long().numpy()  # numbers with a point of one channel
        return {'areas': _areas(labels, classes)}, labels.astype(
            np.uint8 if len(classes) <= 256 else np.uint16)
    if scope == 'mmpretrain' and 'pred_score' in sample:
        return {'classes': _classes(sample.pred_score, classes)}, None
    raise ValueError(f'the model of the config predicts {", ".join(sample.keys()) or "nothing"}: '
                     'predict knows boxes (pred_instances), label maps (pred_sem_seg) and classes '
                     '(pred_score)')


def _objects(instances: InstanceData, classes: Sequence[str], score_thr: float) -> list[Record]:
    instances = instances[instances.scores > score_thr]
    boxes = getattr(instances.bboxes, 'tensor', instances.bboxes)
    objects = []
    for box, score, label in zip(boxes.tolist(), instances.scores.tolist(),
                                 instances.labels.tolist(), strict=True):
        left, top, right, bottom = box
        objects.append({'label': label, 'name': classes[label], 'score': score,
                        'bbox': [left, top, right - left, bottom - top]})
    if 'masks' in instances:
        from mmdet.structures.mask import encode_mask_results

        for entry, code in zip(objects, encode_mask_results(instances.masks), strict=True):
            entry['segmentation'] = {'size': list(code['size']), 'counts': code['counts'].decode()}
    return objects


def _areas(labels: np.ndarray, classes: Sequence[str]) -> list[Record]:
    present, counts = np.unique(labels, return_counts=True)
    order = np.argsort(-counts, kind='stable')
    return [{'label': int(present[i]), 'share': float(counts[i] / labels.size),
             'name': classes[present[i]] if present[i] < len(classes) else 'none'} for i in order]


def _classes(scores: Tensor, classes: Sequence[str]) -> list[Record]:
    best = scores.topk(min(TOP, len(scores)))
    return [{'label': label, 'name': classes[label], 'score': score}
            for score, label in zip(best.values.tolist(), best.indices.tolist(), strict=True)]


class PredictionsFile:
    """predictions.json, written a line a picture, under its name when it is closed.

    Until then, and for good after a kill, it is ``predictions.json.partial``.

    Args:
        folder: where it goes.
        about: what stands in front of the pictures.
    """

    def __init__(self, folder: Path, about: Record) -> None:
        self.path = folder / 'predictions.json'
        self.partial = folder / 'predictions.json.partial'
        self.skipped: list[dict[str, str]] = []
        self.number = 0
        self.partial.unlink(missing_ok=True)  # of a run that was killed; a link is not followed
        # Of a name that is not UTF-8, json gets \\udcXX, which Python reads as the same name.
        self._file = open(self.partial, 'x', encoding='utf-8', errors='backslashreplace')
        self._file.write(json.dumps(about, ensure_ascii=False)[:-1] + ',\n"images": [')

    def add(self, record: Record) -> None:
        """Appends what was predicted for a picture."""
        try:
            line = json.dumps(record, ensure_ascii=False, allow_nan=False)
        except ValueError as error:
            raise ValueError('the model predicts numbers that are not finite') from error
        self._file.write(f'{"," if self.number else ""}\n{line}')
        self.number += 1

    def __enter__(self) -> PredictionsFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """Ends the file and gives it its name; after an error, ``complete`` is false in it."""
        end = {'skipped': self.skipped, 'complete': kind is None}
        with self._file:
            self._file.write('\n],\n' + json.dumps(end, ensure_ascii=False)[1:] + '\n')
        put_in_place(self.partial, self.path)
