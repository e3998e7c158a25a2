"""mmdet's data preprocessor, with the images' sizes noted on the batch."""
from typing import Any

from mmdet.models import DetDataPreprocessor as MMDetDataPreprocessor

from .recording import note_img_shapes


class DetDataPreprocessor(MMDetDataPreprocessor):
    """mmdet's DetDataPreprocessor (same arguments), whose batches carry their images' sizes."""

    def forward(self, data: dict[str, Any], training: bool = False) -> dict[str, Any]:
        """As mmdet's; the batch's ``img_shapes`` are the samples' ``img_shape``."""
        return note_img_shapes(super().forward(data, training))
