"""Multi-scale deformable attention with batches first."""
from __future__ import annotations

from typing import Any

from mmcv.ops.multi_scale_deform_attn import MultiScaleDeformableAttention as MMCVDeformable


class MultiScaleDeformableAttention(MMCVDeformable):
    """mmcv's module with batches first."""

    def __init__(self, *args: Any, batch_first: bool = True, **kwargs: Any) -> None:
        if not batch_first:
            raise ValueError('batch_first=False: batches come first in all of mmdet; leave it out')
        super().__init__(*args, batch_first=True, **kwargs)
