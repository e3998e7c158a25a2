"""mmseg's data preprocessor, with the images' sizes noted on the batch."""
from typing import Any

from mmseg.models import SegDataPreProcessor as MMSegDataPreProcessor

from .recording import note_img_shapes


class SegDataPreProcessor(MMSegDataPreProcessor):
    """See :func:`mmposenc.data_preprocessors.SegDataPreProcessor`."""

    def forward(self, data: dict[str, Any], training: bool = False) -> dict[str, Any]:
        """As mmseg's; the batch's ``img_shapes`` are the samples' sizes before batching."""
        shapes = [tuple(image.shape[-2:]) for image in data['inputs']]
        return note_img_shapes(super().forward(data, training), shapes)
