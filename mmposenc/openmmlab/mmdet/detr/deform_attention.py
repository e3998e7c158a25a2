"""Deformable attention over several maps, batch first."""
from __future__ import annotations

from collections.abc import Sequence

import torch
from mmcv.ops.multi_scale_deform_attn import MultiScaleDeformableAttention as MMCVDeformable
from mmcv.ops.multi_scale_deform_attn import MultiScaleDeformableAttnFunction
from torch import Tensor, nn

from mmposenc.compat.deform_attn import host_shapes, ms_deform_attn_forward, note_host_shapes
from mmposenc.detr.building import check_batch_first
from mmposenc.encodings.checks import check_choices
from mmposenc.functional.linear import project


class MultiScaleDeformableAttention(MMCVDeformable):
    """mmcv's multi-scale deformable attention (Deformable DETR, Zhu et al., ICLR 2021, Eq. 3) with
    batch-first tensors.

    The sizes of the levels are read once for all modules, so a GPU is synchronised once a model
    instead of once a module.

    Args:
        num_points: points of each level and head, or a number for each level (RT-DETRv2, Lv et al.,
            2024, Sec. 3).
        sampling: how points are read from the maps: 'bilinear', or 'discrete' (RT-DETRv2): the cell
            at each point, rounded as in its release, and no gradient to the points.
        args, kwargs: other arguments of mmcv's.

    Raises:
        ValueError: there is not one number of points for each level.
    """

    def __init__(self, *args: object, num_levels: int = 4, num_points: int | Sequence[int] = 4,
                 sampling: str = 'bilinear', batch_first: bool = True, **kwargs: object) -> None:
        check_batch_first(batch_first)
        check_choices(sampling=(sampling, ('bilinear', 'discrete')))
        points = [num_points] * num_levels if isinstance(num_points, int) else list(num_points)
        if len(points) != num_levels or min(points) < 1:
            raise ValueError(f'num_points={num_points} must be at least 1, or as many such numbers '
                             f'as there are levels (num_levels={num_levels})')
        self.points, self.sampling = points, sampling
        super().__init__(*args, num_levels=num_levels, num_points=max(points), batch_first=True,
                         **kwargs)

    def init_weights(self) -> None:
        """Initialise as mmcv does; of levels with fewer points the last ones are left out."""
        places, numbers = self.num_heads * sum(self.points), self.attention_weights
        if numbers.out_features != places:
            self.sampling_offsets = nn.Linear(self.embed_dims, 2 * places)
            self.attention_weights = nn.Linear(self.embed_dims, places)
        super().init_weights()
        levels = self.sampling_offsets.bias.detach().view(self.num_heads, self.num_levels, -1, 2)
        self.sampling_offsets.bias.data = torch.cat(
            [levels[:, level, :count] for level, count in enumerate(self.points)], 1).flatten()
        self.sampling_offsets.requires_grad_(self.sampling == 'bilinear')

    def forward(self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None,
                identity: Tensor | None = None, query_pos: Tensor | None = None,
                key_padding_mask: Tensor | None = None, reference_points: Tensor | None = None,
                spatial_shapes: Tensor | None = None, level_start_index: Tensor | None = None,
                valid_ratios: Tensor | None = None, **kwargs: object) -> Tensor:
        """Attend.

        Args:
            query: (B, queries, C); value: (B, keys, C), by default the queries; key is not used.
            identity: added to the output, by default the queries.
            query_pos: added to the queries, or None.
            key_padding_mask: (B, keys) bool, True = padding.
            reference_points: (B, queries, levels, 2) as x, y in [0, 1], or 4 with width and height.
            spatial_shapes: (levels, 2), (H, W) of the levels; level_start_index: (levels,).
            valid_ratios: (B, levels, 2), valid share of the padded maps (width, height), by which
                discrete points stay in their image.

        Returns:
            (B, queries, C).

        Raises:
            ValueError: the sizes of the levels do not match the number of keys, or reference points
                have neither 2 nor 4 coordinates.
        """
        assert reference_points is not None and spatial_shapes is not None
        value = query if value is None else value
        identity = query if identity is None else identity
        query = query if query_pos is None else query + query_pos
        shapes = host_shapes(spatial_shapes)
        if sum(height * width for height, width in shapes) != value.shape[1]:
            raise ValueError(f'value has {value.shape[1]} tokens, but spatial_shapes={shapes} has '
                             f'{sum(height * width for height, width in shapes)} cells')
        value = project(self.value_proj, value)
        if key_padding_mask is not None:
            value = value.masked_fill(key_padding_mask[..., None], 0.0)
        value = value.unflatten(2, (self.num_heads, -1))
        offsets = project(self.sampling_offsets, query).unflatten(2, (self.num_heads, -1, 2))
        weights = project(self.attention_weights, query)
        weights = weights.unflatten(2, (self.num_heads, -1)).softmax(-1)
        if self.sampling == 'bilinear' and len(set(self.points)) == 1:
            of_levels = (self.num_levels, self.num_points)
            offsets, weights = offsets.unflatten(3, of_levels), weights.unflatten(3, of_levels)
            out = self._sampled(value, spatial_shapes, level_start_index, self._locations(
                offsets, reference_points, spatial_shapes), weights)
        else:
            out = self._sum_of_levels(value, spatial_shapes, reference_points, offsets, weights,
                                      valid_ratios)
        return self.dropout(project(self.output_proj, out)) + identity

    def _sampled(self, value: Tensor, spatial_shapes: Tensor, level_start_index: Tensor,
                 locations: Tensor, weights: Tensor) -> Tensor:
        args = (value, spatial_shapes, level_start_index, locations, weights, self.im2col_step)
        # For these mmcv has no kernel.
        if value.device.type in ('cpu', 'meta') or value.dtype == torch.bfloat16:
            return ms_deform_attn_forward(*args)
        return MultiScaleDeformableAttnFunction.apply(*args)

    def _sum_of_levels(self, value: Tensor, spatial_shapes: Tensor, points: Tensor,
                       offsets: Tensor, weights: Tensor, valid_ratios: Tensor | None) -> Tensor:
        """The output, of levels that differ in their number of points or are sampled discretely.

        Args:
            offsets: (B, queries, heads, points of all levels, 2); weights: without the last axis.
        """
        shapes, outs = host_shapes(spatial_shapes), []
        parts = zip(value.split([height * width for height, width in shapes], 1),
                    offsets.split(self.points, 3), weights.split(self.points, 3), strict=True)
        for level, (cells, offset, weight) in enumerate(parts):
            shape = note_host_shapes(spatial_shapes[level:level + 1], shapes[level:level + 1])
            at = self._locations(offset[:, :, :, None], points[:, :, level:level + 1], shape)
            if self.sampling == 'discrete':
                outs.append(sampled_cells(cells, shapes[level], at[:, :, :, 0], weight,
                                          None if valid_ratios is None else valid_ratios[:, level]))
            else:
                outs.append(self._sampled(cells.contiguous(), shape, shape.new_zeros(1), at,
                                          weight[:, :, :, None]))
        return torch.stack(outs).sum(0)

    def _locations(self, offsets: Tensor, points: Tensor, spatial_shapes: Tensor) -> Tensor:
        """The points to sample, (B, queries, heads, levels, points, 2)."""
        if points.shape[-1] not in (2, 4):
            raise ValueError(f'reference_points has {points.shape[-1]} numbers a point; it must '
                             f'have 2 or 4')
        points = points[:, :, None, :, None]
        if points.shape[-1] == 2:
            return points + offsets / spatial_shapes.flip(1)[:, None]
        return points[..., :2] + offsets * (0.5 / offsets.shape[-2]) * points[..., 2:]


def sampled_cells(value: Tensor, hw_shape: tuple[int, int], locations: Tensor, weights: Tensor,
                  valid_ratios: Tensor | None = None) -> Tensor:
    """Sums of the cells at some points of one map (RT-DETRv2, discrete sampling). A point outside
    takes the nearest cell in its row or column.

    Args:
        value: (B, H * W, heads, head_dims); hw_shape: (H, W).
        locations: (B, queries, heads, points, 2) as x, y in [0, 1]; weights: without the last axis.
        valid_ratios: (B, 2), shares of width and height that each image fills; None: all.

    Returns:
        (B, queries, heads * head_dims).

    On a map that is no square the release limits both numbers of a cell by the height; here, and in
    transformers, columns are limited by the width.
    """
    sides = locations.new_tensor(hw_shape).flip(0)
    last = (sides if valid_ratios is None else (valid_ratios * sides).round()).long() - 1
    cells = (locations * sides + 0.5).long().clamp(min=0).minimum(last.view(-1, 1, 1, 1, 2))
    index = (cells[..., 1] * hw_shape[1] + cells[..., 0]).movedim(2, 1)  # (B, heads, queries, n)
    picked = value.movedim(2, 1).gather(
        2, index.flatten(2)[..., None].expand(-1, -1, -1, value.shape[-1]))
    out = (picked.unflatten(2, index.shape[2:]) * weights.movedim(2, 1)[..., None]).sum(3)
    return out.movedim(1, 2).flatten(2)
