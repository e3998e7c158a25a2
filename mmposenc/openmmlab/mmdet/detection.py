"""mmdet's data preprocessor and RetinaNet head, for padded batches and several processes."""
from __future__ import annotations

from typing import Any

from mmdet.evaluation import DumpDetResults as _DumpDetResults
from mmdet.models import DetDataPreprocessor as MMDetDataPreprocessor
from mmdet.models.dense_heads import RetinaHead as _RetinaHead
from mmdet.utils import reduce_mean

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


# This part of the file has RetinaNet's head with a loss that does not depend on the number of
# processes.


class RetinaHead(_RetinaHead):
    """mmdet's RetinaHead (same arguments and weights) with a loss divided by the mean number of
    positive anchors over all processes.

    mmdet divides by the number in each process, so the weight of an image depends on the images
    that share its process: with two processes by 8 %. With one process the results are equal.
    """

    def get_targets(self, *args: object, **kwargs: object) -> tuple[Any, ...] | None:
        targets = super().get_targets(*args, **kwargs)
        if targets is None:
            return None
        label_weights = targets[1][0]
        mean = reduce_mean(label_weights.new_tensor([float(targets[4])])).item()
        return (*targets[:4], mean, *targets[5:])
