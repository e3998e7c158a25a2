"""Pictures of predicted classes, under test-time augmentation too."""
from __future__ import annotations

from typing import Any

from mmpretrain.engine.hooks import VisualizationHook


class ClsVisualizationHook(VisualizationHook):
    """mmpretrain's hook, also under test-time augmentation: it draws the first view there, where
    mmpretrain's own fails."""

    def _draw_samples(self, batch_idx: int, data_batch: dict, data_samples: Any,
                      step: int = 0) -> None:
        inputs = data_batch['inputs']
        if inputs[0].ndim == 4:  # a batch for every view
            data_batch = {**data_batch, 'inputs': inputs[0]}
        super()._draw_samples(batch_idx, data_batch, data_samples, step=step)
