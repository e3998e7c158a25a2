"""What a test of a config measures: its main number, and the same for each class and each size of
objects."""
from __future__ import annotations

import copy
import math
from dataclasses import dataclass

from mmengine.config import Config, ConfigDict

from mmposenc.config_types import ConfigType, ReadOnlyConfig
from mmposenc.engine.apps.class_names import class_names
from mmposenc.engine.config.checks import check_sections
from mmposenc.engine.config.nodes import listed, type_without_library
from mmposenc.engine.config.testing import scope_of
from mmposenc.terminal.messages import suggestion_text

from .files import Record

#: Evaluators of mIoU.
IOU = ('IoUMetric', 'ClassIoUMetric')


@dataclass(frozen=True)
class Metric:
    """The number by which encodings are compared; for all that are known here, more is better.

    Attributes:
        name: its key in the results of a test.
        label: for people.
        unit: '%', or '' for numbers from 0 to 1.
    """

    name: str
    label: str
    unit: str = ''


#: For each class of evaluators: the prefix of its results, the key, the label and the unit.
_METRICS = {
    'Accuracy': ('accuracy', 'top1', 'top-1 accuracy', '%'),
    'SingleLabelMetric': ('single-label', 'f1-score', 'mean F1', '%'),
    'MultiLabelMetric': ('multi-label', 'f1-score', 'mean F1', '%'),
    'AveragePrecision': ('multi-label', 'mAP', 'mAP', '%'),
    'CocoMetric': ('coco', 'bbox_mAP', 'AP of boxes', ''),
    'LVISMetric': ('lvis', 'bbox_AP', 'AP of boxes', ''),
    'VOCMetric': ('pascal_voc', 'mAP', 'AP of boxes (VOC)', ''),
    'IoUMetric': ('', 'mIoU', 'mIoU', '%'),
    'ClassIoUMetric': ('', 'mIoU', 'mIoU', '%'),
}


def metric_of_config(cfg: Config) -> Metric:
    """The main number of a config's test, that of its first evaluator.

    Raises:
        ValueError: the config has no data to test with, or an evaluator that is not known here.
    """
    first = _evaluators(cfg)[0]
    kind = type_without_library(first)
    if kind not in _METRICS:
        raise ValueError(f'test_evaluator.type={first.get("type")!r}: which of its numbers sums a '
                         f'test up is known for {", ".join(_METRICS)}'
                         f'{suggestion_text(kind, _METRICS)}')
    prefix, key, label, unit = _METRICS[kind]
    if kind in ('CocoMetric', 'LVISMetric') and boxes_or_masks(first) != 'bbox':
        key, label = key.replace('bbox', 'segm'), 'AP of masks'
    if kind == 'Accuracy':
        best = min(listed(first.get('topk', 1)))
        key, label = f'top{best}', f'top-{best} accuracy'
    prefix = prefix if first.get('prefix') is None else first['prefix']
    return Metric(f'{prefix}/{key}' if prefix else key, label, unit)


def config_with_details(cfg: Config) -> Config:
    """A config whose test also measures each class, and small, medium and large objects.

    Raises:
        ValueError: as :func:`metric_of_config`.
    """
    metric_of_config(cfg)
    changed = copy.deepcopy(cfg)
    first, *others = [dict(each) for each in _evaluators(changed)]
    kind = type_without_library(first)
    if kind == 'Accuracy':
        others.append(dict(type='SingleLabelMetric', items=('recall', 'support'), average=None,
                           num_classes=len(class_names(changed, {})) or None,
                           prefix='by-class'))
    elif kind == 'CocoMetric':
        # Boxes and masks have the same names of classes in the results, so only one of the two can
        # be asked for.
        first.update(classwise=True, metric=boxes_or_masks(first))
    elif kind in IOU:
        first['type'] = 'mmposenc.ClassIoUMetric'
    changed.test_evaluator = [ConfigDict(each) for each in (first, *others)]
    return changed


def value_and_details(cfg: Config, metric: Metric, metrics: Record
                      ) -> tuple[float, dict[str, float], dict[str, float]]:
    """The numbers that encodings are compared by, read from the results of a test.

    Args:
        cfg: the config of the test, with or without :func:`config_with_details`.
        metric: of :func:`metric_of_config`.
        metrics: what the test returned.

    Returns:
        The number of the metric; by class the recall (classification), AP (boxes) or IoU, in
        the same unit; by object size AP of 'small', 'medium' and 'large' boxes, in COCO's sense.
        What does not occur in the data is left out. A detector without any box has 0.

    Raises:
        ValueError: the results lack the number.
    """
    if not metrics and scope_of(cfg) == 'mmdet':
        # Not a single box was predicted, and mmdet's metric then returns nothing.
        return 0.0, {}, {}
    if metric.name not in metrics:
        raise ValueError(f'the test gave no {metric.name!r}; it gave '
                         f'{", ".join(sorted(map(str, metrics)))}')
    names, prefix = class_names(cfg, {}), metric.name.rpartition('/')[0]
    by_class, by_size = {}, {}
    recalls = (metrics.get(f'by-class/{item}_classwise', ()) for item in ('recall', 'support'))
    for name, value, number in zip(names, *recalls, strict=False):
        if number:
            by_class[name] = float(value)
    for name in names:
        for key in (f'{prefix}/{name}_precision', f'IoU.{name}'):
            if key in metrics:
                by_class[name] = float(metrics[key])
    for name in ('small', 'medium', 'large'):
        value = metrics.get(f'{metric.name}_{name[0]}')
        # The value -1 means that there are none in the data.
        if value is not None and float(value) >= 0:
            by_size[name] = float(value)
    return (float(metrics[metric.name]),
            {name: value for name, value in by_class.items() if math.isfinite(value)}, by_size)


def _evaluators(cfg: Config) -> list[ConfigType]:
    try:
        check_sections(cfg, ('train', 'test'))
    except ValueError as error:
        hint = ' (test_dataloader = val_dataloader and its like would do)' if cfg.get(
            'val_dataloader') and not cfg.get('test_dataloader') else ''
        raise ValueError(f'{error}: encodings are compared on data that training does not see'
                         f'{hint}') from error
    return listed(cfg.test_evaluator)


def boxes_or_masks(evaluator: ReadOnlyConfig) -> str:
    """What a COCO metric evaluates first: 'bbox' if boxes are among it."""
    asked = listed(evaluator.get('metric', 'bbox'))
    return 'bbox' if 'bbox' in asked else asked[0]
