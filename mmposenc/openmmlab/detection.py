"""mmdet's data preprocessor, with the images' sizes noted on the batch."""
from __future__ import annotations

from typing import Any

from mmdet.models import DetDataPreprocessor as MMDetDataPreprocessor
from mmdet.models.dense_heads import RetinaHead as _RetinaHead
from mmdet.utils import reduce_mean

from ..functional.image_sizes import note_img_shapes


class DetDataPreprocessor(MMDetDataPreprocessor):
    """mmdet's DetDataPreprocessor (same arguments), whose batches carry their images' sizes."""

    def forward(self, data: dict[str, Any], training: bool = False) -> dict[str, Any]:
        """As mmdet's; the batch's ``img_shapes`` are the samples' ``img_shape``."""
        return note_img_shapes(super().forward(data, training))


# RetinaNet's head with a loss that is one whatever the number of processes.


class RetinaHead(_RetinaHead):  # type: ignore[misc]
    """mmdet's RetinaHead (same arguments, same weights), divided by the mean of the processes'
    numbers of positive anchors.

    mmdet divides each process's loss by its own number, so that an image's weight depends on which
    images happen to share its process: by 8 % at two processes. One process gives the same.
    """

    def get_targets(self, *args: Any, **kwargs: Any) -> Any:
        targets = super().get_targets(*args, **kwargs)
        if targets is None:
            return None
        label_weights = targets[1][0]
        mean = reduce_mean(label_weights.new_tensor([float(targets[4])])).item()
        return (*targets[:4], mean, *targets[5:])
