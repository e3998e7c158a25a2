"""Multi-scale deformable attention, faster on a CPU."""
from __future__ import annotations

from typing import Any

from mmcv.ops.multi_scale_deform_attn import MultiScaleDeformableAttention as MMCVDeformable
from torch import Tensor


class MultiScaleDeformableAttention(MMCVDeformable):
    """mmcv's module with batches first and dropout as mmdet's configs set it."""

    def __init__(self, *args: Any, batch_first: bool = True, **kwargs: Any) -> None:
        if not batch_first:
            raise ValueError('batch_first=False: batches come first in all of mmdet; leave it out')
        super().__init__(*args, batch_first=True, **kwargs)

    def forward(self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None,
                identity: Tensor | None = None, query_pos: Tensor | None = None,
                key_padding_mask: Tensor | None = None, **kwargs: Any) -> Tensor:
        """As mmcv's."""
        out: Tensor = super().forward(
            query, key, value, identity, query_pos, key_padding_mask, **kwargs)
        return out
