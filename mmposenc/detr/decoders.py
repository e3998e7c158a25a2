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

    def _init_layers(self) -> None:
        super()._init_layers()
        # mmdet 3.3 gives this head 512 numbers of a box, whatever the width; 3.5 what it takes.
        if self.ref_point_head.layers[0].in_features == 2 * self.embed_dims != 512:
            raise ValueError(f'embed_dims={self.embed_dims} of the decoder must be 256: the DINO '
                             f'of this mmdet encodes boxes for no other width (3.5 does)')
