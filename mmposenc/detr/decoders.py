"""mmdet's decoders on this project's attention; parameters have mmdet's names."""
from __future__ import annotations

from typing import Any

import torch
from mmcv.cnn import build_norm_layer
from mmdet.models.layers.transformer import (
    MLP,
    DeformableDetrTransformerDecoder,
    DetrTransformerDecoder,
    DinoTransformerDecoder,
    coordinate_to_encoding,
    inverse_sigmoid,
)
from mmengine.model import ModuleList
from torch import Tensor, nn

from .mmdet_layers import DeformableDecoderLayer, DetrDecoderLayer


class DetrDecoder(DetrTransformerDecoder):
    """DETR's decoder without attention weights."""

    def _init_layers(self) -> None:
        self.layers = ModuleList(DetrDecoderLayer(**self.layer_cfg)
                                 for _ in range(self.num_layers))
        self.embed_dims = self.layers[0].embed_dims
        self.post_norm = build_norm_layer(self.post_norm_cfg, self.embed_dims)[1]


class DeformableDecoder(DeformableDetrTransformerDecoder):
    """Deformable DETR's decoder without attention weights."""

    def _init_layers(self) -> None:
        if self.post_norm_cfg is not None:
            raise ValueError(f'decoder.post_norm_cfg={self.post_norm_cfg!r} must be None: a '
                             f'deformable decoder has no norm behind it')
        self.layers = ModuleList(DeformableDecoderLayer(**self.layer_cfg)
                                 for _ in range(self.num_layers))
        self.embed_dims = self.layers[0].embed_dims


class DinoDecoder(DinoTransformerDecoder, DeformableDecoder):
    """DINO's decoder on the layers of :class:`DeformableDecoder`.

    Args:
        coordinate_feats: sines and cosines of each of a box's four coordinates, which make the
            positions of queries. 128 in the release and in the weights that mmdet published; None:
            as many as the installed mmdet takes, which is ``embed_dims`` in 3.5 and 128 in 3.3.

    Raises:
        ValueError: ``coordinate_feats`` is odd or below 2.
    """

    def __init__(self, *args: Any, coordinate_feats: int | None = None, **kwargs: Any) -> None:
        if coordinate_feats is not None and (coordinate_feats < 2 or coordinate_feats % 2):
            raise ValueError(f'decoder.coordinate_feats={coordinate_feats} must be even and at '
                             f'least 2: a sine and a cosine each')
        self.coordinate_feats = coordinate_feats
        super().__init__(*args, **kwargs)

    def _init_layers(self) -> None:
        super()._init_layers()
        dims = self.embed_dims
        if self.coordinate_feats is None:
            taken = self.ref_point_head.layers[0].in_features
            self.coordinate_feats = dims if taken == 4 * dims else 128
        # Also where mmdet's would do: with one head less, a seed gives other weights to all that is
        # made behind it.
        self.ref_point_head = MLP(4 * self.coordinate_feats, dims, dims, 2)

    def forward(self, query: Tensor, *, reference_points: Tensor, valid_ratios: Tensor,
                reg_branches: nn.ModuleList, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """As mmdet, which has a fixed number of ``coordinate_feats``.

        Args:
            query: (B, num_queries, C).
            reference_points: boxes (B, num_queries, 4), as (cx, cy, w, h) of the images.
            valid_ratios: (B, num_levels, 2), of the padded maps the part that is image.
            reg_branches: what a layer's queries add to the boxes, one for each layer.
            kwargs: of the layers.

        Returns:
            Queries (num_layers, B, num_queries, C) and boxes (num_layers + 1, B, num_queries, 4).
        """
        queries, boxes = [], [reference_points]
        ratios = torch.cat([valid_ratios, valid_ratios], -1)[:, None]
        for layer, branch in zip(self.layers, reg_branches, strict=False):
            of_levels = reference_points[:, :, None] * ratios  # (B, num_queries, num_levels, 4)
            encoded = coordinate_to_encoding(of_levels[:, :, 0], num_feats=self.coordinate_feats)
            query = layer(query, query_pos=self.ref_point_head(encoded), valid_ratios=valid_ratios,
                          reference_points=of_levels, **kwargs)
            moved = branch(query) + inverse_sigmoid(reference_points, eps=1e-3)
            # The next layer looks at this box, and is not learned from by it ("look forward twice":
            # the loss of the next box is).
            boxes.append(moved.sigmoid())
            queries.append(self.norm(query))
            reference_points = boxes[-1].detach()
        return torch.stack(queries), torch.stack(boxes)
