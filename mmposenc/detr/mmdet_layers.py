"""Layers of DETR's and Deformable DETR's decoders and of Deformable DETR's encoder; need mmdet."""
from __future__ import annotations

from mmdet.models.layers.transformer import (
    DeformableDetrTransformerDecoderLayer as MMDeformableDecoderLayer,
)
from mmdet.models.layers.transformer import DetrTransformerDecoderLayer as MMDecoderLayer

from .attention import MultiheadAttention
from .deformable_attention import MultiScaleDeformableAttention
from .layers import DetrEncoderLayer, ffn_and_norms


class DetrDecoderLayer(MMDecoderLayer):
    """mmdet's decoder layer without attention weights."""

    def _init_layers(self) -> None:
        self.self_attn = MultiheadAttention(**self.self_attn_cfg)
        self.cross_attn = MultiheadAttention(**self.cross_attn_cfg)
        self.embed_dims = self.self_attn.embed_dims
        self.ffn, self.norms = ffn_and_norms(self.ffn_cfg, self.norm_cfg, self.embed_dims, 3)


class DeformableEncoderLayer(DetrEncoderLayer):
    """Encoder layer of Deformable DETR (Zhu et al., ICLR 2021, Sec. 4.1).

    Raises:
        ValueError: with a ``rel_pos_encoding``: its attention has no logits of pairs.
    """

    def _init_layers(self) -> None:
        if self.self_attn_cfg.get('rel_pos_encoding') is not None:
            raise ValueError(
                f'encoder.layer_cfg.self_attn_cfg.rel_pos_encoding='
                f'{self.self_attn_cfg["rel_pos_encoding"]!r}: deformable attention compares no '
                f'pairs of tokens; use pos_encoding, or a detector with dense attention '
                f'(mmposenc.DETR, ConditionalDETR, DABDETR)')
        cfg = {k: v for k, v in self.self_attn_cfg.items() if k != 'rel_pos_encoding'}
        self.self_attn = MultiScaleDeformableAttention(**cfg)
        self.embed_dims = self.self_attn.embed_dims
        self.ffn, self.norms = ffn_and_norms(self.ffn_cfg, self.norm_cfg, self.embed_dims, 2)


class DeformableDecoderLayer(MMDeformableDecoderLayer):
    """mmdet's decoder layer without attention weights."""

    def _init_layers(self) -> None:
        self.self_attn = MultiheadAttention(**self.self_attn_cfg)
        self.cross_attn = MultiScaleDeformableAttention(**self.cross_attn_cfg)
        self.embed_dims = self.self_attn.embed_dims
        self.ffn, self.norms = ffn_and_norms(self.ffn_cfg, self.norm_cfg, self.embed_dims, 3)
