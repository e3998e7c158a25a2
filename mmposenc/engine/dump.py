"""Predictions written to a file for offline evaluation."""
from __future__ import annotations

from typing import Any

from mmengine.evaluator import DumpResults


class DumpSegResults(DumpResults):
    """mmengine's DumpResults without the logits, which are float maps of every class per image."""

    def process(self, data_batch: Any, predictions: Any) -> None:
        kept = [{key: value for key, value in sample.items() if key != 'seg_logits'}
                for sample in predictions]
        super().process(data_batch, kept)
