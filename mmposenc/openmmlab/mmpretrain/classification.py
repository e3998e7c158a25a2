"""mmpretrain's data preprocessor for images of several sizes."""
from __future__ import annotations

from typing import Any

from mmpretrain.models import ClsDataPreprocessor as MMPretrainClsDataPreprocessor

from ...functional.image_sizes import note_img_shapes

#: ``inputs`` and ``data_samples`` of a batch.
Batch = dict[str, Any]


class ClsDataPreprocessor(MMPretrainClsDataPreprocessor):
    """mmpretrain's ClsDataPreprocessor, which stores the images' sizes on the batch for backbones
    with ``mask_padding=True``. Arguments are those of mmpretrain's class."""

    def forward(self, data: Batch, training: bool = False) -> Batch:
        """Preprocess as mmpretrain does; the batch's attribute ``img_shapes`` lists the sizes of
        the images."""
        shapes = [tuple(image.shape[-2:]) for image in data['inputs']]
        batch = super().forward(data, training)
        if self.batch_augments is not None and training:
            return batch  # Mixup and CutMix mix images of one size.
        return note_img_shapes(batch, shapes)
