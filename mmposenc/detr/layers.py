"""Encoder and decoder layers of DETR and Deformable DETR on this project's attention."""
from __future__ import annotations

from typing import Any

from mmcv.cnn import build_norm_layer
from mmdet.models.layers.transformer import (
    DeformableDetrTransformerDecoderLayer as MMDeformableDecoderLayer,
)
from mmdet.models.layers.transformer import (
    DeformableDetrTransformerEncoderLayer as MMDeformableEncoderLayer,
)
from mmdet.models.layers.transformer import DetrTransformerDecoderLayer as MMDecoderLayer
from mmdet.models.layers.transformer import DetrTransformerEncoderLayer as MMEncoderLayer
from mmengine.model import ModuleList
from torch import Tensor

from .attention import FFN, MultiheadAttention
from .deformable_attention import MultiScaleDeformableAttention


class DetrEncoderLayer(MMEncoderLayer):
    """Encoder layer of DETR (Carion et al., ECCV 2020, Fig. 10) with a relative encoding.

    Args:
        self_attn_cfg: arguments of :class:`MultiheadAttention`; ``rel_pos_encoding`` among them.
        ffn_cfg, norm_cfg, init_cfg: as of mmdet's layer.
    """

    def _init_layers(self) -> None:
        self.self_attn = MultiheadAttention(**self.self_attn_cfg)
        self.embed_dims = self.self_attn.embed_dims
        self.ffn, self.norms = _ffn_and_norms(self.ffn_cfg, self.norm_cfg, self.embed_dims, 2)

    def forward(self, query: Tensor, query_pos: Tensor | None = None,
                key_padding_mask: Tensor | None = None, *, x_qk: Tensor | None = None,
                **kwargs: Any) -> Tensor | tuple[Tensor, Tensor]:
        """Encode.

        Args:
            query: tokens (B, L, C).
            query_pos: added to the tokens where queries and keys are computed, or None.
            key_padding_mask: (B, L) bool, True = padding.
            x_qk: tokens for queries and keys, where they differ from ``query``.
            kwargs: ``hw_shape`` for a relative encoding, ``need_weights``; what a deformable
                attention takes.

        Returns:
            (B, L, C), with ``need_weights`` also the weights (B, heads, L, L).
        """
        source = query if x_qk is None else x_qk
        out = self.self_attn(source, source, query, query, query_pos=query_pos, key_pos=query_pos,
                             key_padding_mask=key_padding_mask, **kwargs)
        out, weights = out if isinstance(out, tuple) else (out, None)
        out = self.norms[1](self.ffn(self.norms[0](out)))
        return out if weights is None else (out, weights)


class DetrDecoderLayer(MMDecoderLayer):
    """mmdet's decoder layer without attention weights."""

    def _init_layers(self) -> None:
        self.self_attn = MultiheadAttention(**self.self_attn_cfg)
        self.cross_attn = MultiheadAttention(**self.cross_attn_cfg)
        self.embed_dims = self.self_attn.embed_dims
        self.ffn, self.norms = _ffn_and_norms(self.ffn_cfg, self.norm_cfg, self.embed_dims, 3)


class DeformableEncoderLayer(DetrEncoderLayer, MMDeformableEncoderLayer):
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
        self.ffn, self.norms = _ffn_and_norms(self.ffn_cfg, self.norm_cfg, self.embed_dims, 2)


class DeformableDecoderLayer(MMDeformableDecoderLayer):
    """mmdet's decoder layer without attention weights."""

    def _init_layers(self) -> None:
        self.self_attn = MultiheadAttention(**self.self_attn_cfg)
        self.cross_attn = MultiScaleDeformableAttention(**self.cross_attn_cfg)
        self.embed_dims = self.self_attn.embed_dims
        self.ffn, self.norms = _ffn_and_norms(self.ffn_cfg, self.norm_cfg, self.embed_dims, 3)


def _ffn_and_norms(ffn_cfg: dict[str, Any], norm_cfg: dict[str, Any], embed_dims: int,
                   num_norms: int) -> tuple[FFN, ModuleList]:
    """What every layer has beside its attention."""
    ffn = FFN(**ffn_cfg)
    if ffn.embed_dims != embed_dims:
        raise ValueError(f'ffn_cfg has embed_dims={ffn.embed_dims}, but the attention has '
                         f'{embed_dims}; they must be equal')
    return ffn, ModuleList(build_norm_layer(norm_cfg, embed_dims)[1] for _ in range(num_norms))
