"""RetinaNet's head with a loss that does not depend on the number of processes."""
from __future__ import annotations

from typing import Any

from mmdet.models.dense_heads import RetinaHead as _RetinaHead
from mmdet.utils import reduce_mean


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
