"""Metrics that write the predictions of a test to a pickle, whole or not at all."""
from __future__ import annotations

from collections.abc import Sequence

from mmengine.evaluator import DumpResults as _DumpResults
from mmengine.fileio import dump

from ..config_types import ReadOnlyConfig
from ..writing import writing_whole_file


class DumpResults(_DumpResults):
    """mmengine's DumpResults (same arguments), which leaves no half of a file."""

    def compute_metrics(self, results: list) -> dict:
        with writing_whole_file(self.out_file_path, suffix='.partial.pkl') as partial:
            dump(results, str(partial))
        return {}


class DumpSegResults(DumpResults):
    """DumpResults without the logits, a float map for each class and image."""

    def process(self, data_batch: object, predictions: Sequence[ReadOnlyConfig]) -> None:
        smaller = [{key: value for key, value in sample.items() if key != 'seg_logits'}
                   for sample in predictions]
        super().process(data_batch, smaller)
