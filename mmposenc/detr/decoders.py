"""mmdet's decoders on this project's attention; parameters have mmdet's names."""
from __future__ import annotations

from mmcv.cnn import build_norm_layer
from mmdet.models.layers.transformer import (
    DeformableDetrTransformerDecoder,
    DetrTransformerDecoder,
    DinoTransformerDecoder,
)
from mmengine.model import ModuleList

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
    """DINO's decoder on the layers of :class:`DeformableDecoder`."""
