"""Intersection over union by class, as numbers of a test and not only in its log."""
from __future__ import annotations

from typing import Any

from mmseg.evaluation import IoUMetric


class ClassIoUMetric(IoUMetric):
    """mmseg's IoUMetric, whose results have 'IoU.<class>' of each class besides (in %; nan where
    neither labels nor predictions have it)."""

    def compute_metrics(self, results: list[Any]) -> dict[str, float]:
        """As mmseg's; (intersections, unions, predicted, labelled) pixels by class, an image
        each."""
        metrics: dict[str, float] = super().compute_metrics(results)
        if self.format_only:
            return metrics
        areas = [sum(each) for each in zip(*results, strict=True)]
        for name, both, either in zip(self.dataset_meta['classes'], *areas[:2], strict=True):
            metrics[f'IoU.{name}'] = 100 * float(both) / float(either) if either else float('nan')
        return metrics
