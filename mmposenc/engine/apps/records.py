"""Writes predictions as JSON, with the names and colours of their labels."""
from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from mmengine.config import Config
from mmengine.structures import BaseDataElement

from mmposenc.checkpoint.integrity import put_in_place

from ...config_types import ReadOnlyConfig
from ..config.nodes import data_sets_with_keys, heads_with_classes, metainfo_entry, num_classes_of
from ..config.testing import scope_of

#: What JSON says about a picture, or about an object in it.
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
    listed = _metainfo_of_test_data(cfg, 'classes') or (meta.get('dataset_meta')
                                                        or {}).get('classes') or ()
    names = [str(name) for name in listed]
    number = max([len(names), *(num_classes_of(head) or 0 for _, head in heads_with_classes(cfg))])
    return names + [f'class {i}' for i in range(len(names), number)]


def class_colours(cfg: Config, names: list[str]) -> list[tuple[int, int, int]]:
    """One RGB colour for each class: those of the test data, otherwise random ones that are always
    the same."""
    configured = [tuple(colour) for colour in _metainfo_of_test_data(cfg, 'palette') or ()]
    random = np.random.default_rng(42).integers(0, 256, (len(names), 3)).tolist()
    return configured if len(configured) == len(names) else [tuple(colour) for colour in random]


def _metainfo_of_test_data(cfg: Config, key: str) -> Sequence[Any] | None:
    """An entry of metainfo, of the first test data set that has it or whose class has it."""
    for _, node in data_sets_with_keys(cfg, 'test'):
        if value := metainfo_entry(node, scope_of(cfg), key):
            return value
    return None


#: The number of a classifier's classes that are listed.
TOP = 5


class PictureRecord(NamedTuple):
    """What a model says of a picture.

    Attributes:
        kind: 'objects' of detection, 'areas' of segmentation, 'classes' of classification.
        labels: (N,) whole numbers: of boxes that score more than the threshold; of the classes that
            cover the picture, the largest first; of the five best classes.
        names: what these N are called.
        scores: (N,) of boxes and classes; the share of the picture that each class covers.
        boxes: (N, 4) left, top, right, bottom in pixels; None but in detection.
        masks: of objects (N, H, W), true inside; of segmentation the label map (H, W), integers;
            else None.
    """

    kind: str
    labels: np.ndarray
    names: list[str]
    scores: np.ndarray
    boxes: np.ndarray | None = None
    masks: np.ndarray | None = None

    def record(self) -> Record:
        """The prediction as JSON, without the label map."""
        score = 'share' if self.kind == 'areas' else 'score'
        entries: list[Record] = [
            {'label': label, 'name': name, score: value} for label, name, value in zip(
                self.labels.tolist(), self.names, self.scores.tolist(), strict=True)]
        if self.boxes is not None:
            for entry, (left, top, right, bottom) in zip(entries, self.boxes.tolist(), strict=True):
                entry['bbox'] = [left, top, right - left, bottom - top]
        if self.kind == 'objects' and self.masks is not None:
            from mmdet.structures.mask import encode_mask_results

            for entry, code in zip(entries, encode_mask_results(self.masks), strict=True):
                entry['segmentation'] = {'size': list(code['size']),
                                         'counts': code['counts'].decode()}
        return {self.kind: entries}


def picture_record(scope: str, sample: BaseDataElement, classes: Sequence[str], score_thr: float
                   ) -> PictureRecord:
    """Read what a model has written into a sample.

    Args:
        scope: 'mmdet', 'mmseg' or 'mmpretrain'.
        sample: the model's, on the CPU.
        classes: names by label.
        score_thr: boxes must score more.

    Raises:
        ValueError: the model predicts none of boxes, label map and classes.
    """
    boxes = masks = None
    if scope == 'mmdet' and 'pred_instances' in sample:
        instances = sample.pred_instances[sample.pred_instances.scores > score_thr]
        kind, labels, scores = 'objects', instances.labels.numpy(), instances.scores.numpy()
        boxes = np.asarray(getattr(instances.bboxes, 'tensor', instances.bboxes))
        masks = np.asarray(instances.masks, bool) if 'masks' in instances else None
    elif scope == 'mmseg' and 'pred_sem_seg' in sample:
        kind, masks = 'areas', sample.pred_sem_seg.data[0].numpy()
        masks = masks.astype(np.uint8 if len(classes) <= 256 else np.uint16)
        labels, counts = np.unique(masks, return_counts=True)
        order = np.argsort(-counts, kind='stable')
        labels, scores = labels[order], counts[order] / masks.size
    elif scope == 'mmpretrain' and 'pred_score' in sample:
        best = sample.pred_score.topk(min(TOP, len(sample.pred_score)))
        kind, labels, scores = 'classes', best.indices.numpy(), best.values.numpy()
    else:
        raise ValueError(f'the model of the config predicts {", ".join(sample.keys()) or "nothing"}'
                         ': predict knows boxes (pred_instances), label maps (pred_sem_seg) and '
                         'classes (pred_score)')
    names = [classes[label] if label < len(classes) else 'none' for label in labels]
    return PictureRecord(kind, labels, names, scores, boxes, masks)


class PredictionsFile:
    """Writes predictions.json line by line, and gives it its name when it is closed. Until then,
    and for good after a kill, it is ``predictions.json.partial``.

    Args:
        folder: where it goes.
        about: what stands in front of the pictures.
    """

    def __init__(self, folder: Path, about: Record) -> None:
        self.path = folder / 'predictions.json'
        self.partial = folder / 'predictions.json.partial'
        self.skipped: list[dict[str, str]] = []
        self.number = 0
        # A partial file of a run that was killed. If it is a link, the link itself is removed.
        self.partial.unlink(missing_ok=True)
        # Where a name is not UTF-8, json gets \\udcXX, which Python reads as the same name.
        self._file = open(self.partial, 'x', encoding='utf-8', errors='backslashreplace')
        self._file.write(json.dumps(about, ensure_ascii=False)[:-1] + ',\n"images": [')

    def add(self, record: Record) -> None:
        """Append what was predicted for a picture."""
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
        """Close the file and give it its name; after an error it says ``complete: false``."""
        end = {'skipped': self.skipped, 'complete': kind is None}
        with self._file:
            self._file.write('\n],\n' + json.dumps(end, ensure_ascii=False)[1:] + '\n')
        put_in_place(self.partial, self.path)
