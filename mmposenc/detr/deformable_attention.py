"""Multi-scale deformable attention with batches first."""
from __future__ import annotations

from typing import Any

import torch
from mmcv.ops.multi_scale_deform_attn import MultiScaleDeformableAttention as MMCVDeformable
from mmcv.ops.multi_scale_deform_attn import MultiScaleDeformableAttnFunction
from torch import Tensor

from ..compat.deform_attn import host_shapes, ms_deform_attn_forward
from .parts import check_batch_first


class MultiScaleDeformableAttention(MMCVDeformable):
    """mmcv's module (Deformable DETR, Zhu et al., ICLR 2021, Eq. 3) with batches first, which waits
    for a GPU once a model instead of once a module: sizes of levels are read one time."""

    def __init__(self, *args: Any, batch_first: bool = True, **kwargs: Any) -> None:
        check_batch_first(batch_first)
        super().__init__(*args, batch_first=True, **kwargs)

    def forward(self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None,
                identity: Tensor | None = None, query_pos: Tensor | None = None,
                key_padding_mask: Tensor | None = None, reference_points: Tensor | None = None,
                spatial_shapes: Tensor | None = None, level_start_index: Tensor | None = None,
                **kwargs: Any) -> Tensor:
        """Attend.

        Args:
            query: (B, queries, C); value: (B, keys, C), by default the queries; key is not read.
            identity: added to the output, by default the queries.
            query_pos: added to the queries, or None.
            key_padding_mask: (B, keys) bool, True = padding.
            reference_points: (B, queries, levels, 2) as x, y in [0, 1], or 4 with width and height.
            spatial_shapes: (levels, 2), (H, W) of the levels; level_start_index: (levels,).

        Returns:
            (B, queries, C).

        Raises:
            ValueError: if the levels do not hold the keys, or for other reference points.
        """
        assert reference_points is not None and spatial_shapes is not None
        value = query if value is None else value
        identity = query if identity is None else identity
        query = query if query_pos is None else query + query_pos
        shapes = host_shapes(spatial_shapes)
        if sum(height * width for height, width in shapes) != value.shape[1]:
            raise ValueError(f'value has {value.shape[1]} tokens, but spatial_shapes={shapes} has '
                             f'{sum(height * width for height, width in shapes)} cells')
        value = self.value_proj(value)
        if key_padding_mask is not None:
            value = value.masked_fill(key_padding_mask[..., None], 0.0)
        value = value.unflatten(2, (self.num_heads, -1))
        per_query = (self.num_heads, self.num_levels, self.num_points)
        offsets = self.sampling_offsets(query).unflatten(2, (*per_query, 2))
        weights = self.attention_weights(query).unflatten(2, (self.num_heads, -1))
        weights = weights.softmax(-1).unflatten(3, per_query[1:])
        args = (value, spatial_shapes, level_start_index,
                self._locations(offsets, reference_points, spatial_shapes), weights,
                self.im2col_step)
        if value.device.type == 'cpu' or value.dtype == torch.bfloat16:  # no kernel of mmcv's
            out = ms_deform_attn_forward(*args)
        else:
            out = MultiScaleDeformableAttnFunction.apply(*args)
        return self.dropout(self.output_proj(out)) + identity

    def _locations(self, offsets: Tensor, points: Tensor, spatial_shapes: Tensor) -> Tensor:
        """Where to sample, (B, queries, heads, levels, points, 2)."""
        if points.shape[-1] not in (2, 4):
            raise ValueError(f'reference_points has {points.shape[-1]} numbers a point; 2 or 4 are '
                             f'required')
        points = points[:, :, None, :, None]
        if points.shape[-1] == 2:
            return points + offsets / spatial_shapes.flip(1)[:, None]
        return points[..., :2] + offsets / self.num_points * points[..., 2:] * 0.5
