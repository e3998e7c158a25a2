"""Reads once from a config all that a comparison asks of it: what takes encodings, how large images
are, how long it trains, and the number that sums up a test."""
from __future__ import annotations

from mmengine.config import Config

from mmposenc.config_types import ConfigType
from mmposenc.engine.config.checks import check_sections
from mmposenc.engine.config.nodes import listed, type_without_library
from mmposenc.engine.config.parsed import ParsedConfig
from mmposenc.terminal.messages import suggestion_text

from ..statistics.results import Metric
from .records import Record

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
}


class StudyConfig(ParsedConfig):
    """The config of a study, which every run begins with.

    Attributes:
        metric: the number by which encodings are compared.

    Raises:
        ValueError: it does not say how long it trains, nothing in its model takes encodings, it has
            no data to test with, or an evaluator that is not known here.
    """

    def __init__(self, cfg: Config) -> None:
        super().__init__(cfg)
        _ = self.length, self.insertion  # Their errors come now.
        self.metric = metric_of_config(self)


def metric_of_config(parsed: ParsedConfig) -> Metric:
    """The main number of a config's test, that of its first evaluator.

    Raises:
        ValueError: the config has no data to test with, or an evaluator that is not known here.
    """
    try:
        check_sections(parsed, ('train', 'test'))
    except ValueError as error:
        hint = ' (test_dataloader = val_dataloader and its like would do)' if parsed.data_sets(
            'val') and not parsed.data_sets('test') else ''
        raise ValueError(f'{error}: encodings are compared on data that training does not see'
                         f'{hint}') from error
    first: ConfigType = listed(parsed.cfg.test_evaluator)[0]
    kind = type_without_library(first)
    if kind not in _METRICS:
        raise ValueError(f'test_evaluator.type={first.get("type")!r}: mmposenc compare does not '
                         f'know which of its numbers to compare; it knows {", ".join(_METRICS)}'
                         f'{suggestion_text(kind, _METRICS)}')
    prefix, key, label, unit = _METRICS[kind]
    if kind in ('CocoMetric', 'LVISMetric') and 'bbox' not in listed(first.get('metric', 'bbox')):
        key, label = key.replace('bbox', 'segm'), 'AP of masks'
    if kind == 'Accuracy':
        best = min(listed(first.get('topk', 1)))
        key, label = f'top{best}', f'top-{best} accuracy'
    prefix = prefix if first.get('prefix') is None else first['prefix']
    return Metric(f'{prefix}/{key}' if prefix else key, label, unit)


def value_of_test(base: StudyConfig, metrics: Record) -> float:
    """The number by which encodings are compared, from the results of a test. A detector that
    predicts no box at all has 0.

    Args:
        base: the config of the study.
        metrics: what the test returned.

    Raises:
        ValueError: the results lack the number.
    """
    name = base.metric.name
    if not metrics and base.scope == 'mmdet':
        return 0.0  # mmdet's metric returns nothing if there is no box.
    if name not in metrics:
        raise ValueError(f'the test gave no {name!r}; it gave '
                         f'{", ".join(sorted(map(str, metrics)))}')
    return float(metrics[name])
