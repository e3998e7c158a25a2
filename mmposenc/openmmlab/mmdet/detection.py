"""mmdet's data preprocessor for padded batches, and its metric that writes predictions."""
from __future__ import annotations

from typing import Any

from mmdet.evaluation import DumpDetResults as _DumpDetResults
from mmdet.models import DetDataPreprocessor as MMDetDataPreprocessor

from ...functional.image_sizes import note_img_shapes
from ..dumping import DumpResults


class DetDataPreprocessor(MMDetDataPreprocessor):
    """mmdet's DetDataPreprocessor (same arguments), which stores the images' sizes on the batch.

    Backbones with ``mask_padding=True`` need it.
    """

    def forward(self, data: dict[str, Any], training: bool = False) -> dict[str, Any]:
        """Preprocess as mmdet does, and store the samples' ``img_shape`` in the tensor's attribute
        ``img_shapes``."""
        return note_img_shapes(super().forward(data, training))


class DumpDetResults(DumpResults, _DumpDetResults):
    """mmdet's DumpDetResults (same arguments), which leaves no half of a file."""
