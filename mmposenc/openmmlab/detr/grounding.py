"""Grounding DINO, whose encoder and decoder read a text beside the picture."""
from __future__ import annotations

from typing import Any, NamedTuple

import torch
from mmdet.models.detectors import GroundingDINO as MMGroundingDINO
from mmdet.models.layers.transformer import DetrTransformerEncoderLayer
from mmdet.models.layers.transformer.grounding_dino_layers import (
    GroundingDinoTransformerDecoderLayer,
)
from mmdet.models.layers.transformer.utils import get_text_sine_pos_embed
from mmdet.models.utils.vlfuse_helper import SingleScaleBiAttentionBlock
from mmengine.model import ModuleList
from torch import Tensor

from mmposenc.backbones.layers import run_block
from mmposenc.detr.encoders import HWShapes
from mmposenc.detr.layers import MultiheadAttention, ffn_and_norms
from mmposenc.functional.packing import Packing

from .decoders import DinoDecoder, MultiScaleDeformableAttention
from .detectors import Deformable
from .encoders import DeformableEncoder


class _Words(NamedTuple):
    """What the layers need of a text besides its tokens."""

    padding: Tensor
    blocked: Tensor
    pos: Tensor


class GroundingEncoder(DeformableEncoder):
    """Encoder of Grounding DINO (Liu et al., ECCV 2024, Sec. 3.2) with encodings of the picture.

    Before each layer, tokens of picture and text attend to each other (``fusion_layers``) and the
    words to each other (``text_layers``). Token encodings of a place come after this fusion.

    Args:
        text_layer_cfg: of mmdet's DetrTransformerEncoderLayer, for the words.
        fusion_layer_cfg: of mmdet's SingleScaleBiAttentionBlock.
        Others as :class:`DeformableEncoder`.

    Parameters are named as in mmdet's encoder, whose results it gives without encodings.
    """

    def __init__(self, *args: Any, text_layer_cfg: dict[str, Any],
                 fusion_layer_cfg: dict[str, Any], **kwargs: Any) -> None:
        self.text_layer_cfg, self.fusion_layer_cfg = text_layer_cfg, fusion_layer_cfg
        super().__init__(*args, **kwargs)

    def _init_layers(self) -> None:
        super()._init_layers()
        layers = range(self.num_layers)
        self.text_layers = ModuleList(
            DetrTransformerEncoderLayer(**self.text_layer_cfg) for _ in layers)
        self.fusion_layers = ModuleList(
            SingleScaleBiAttentionBlock(**self.fusion_layer_cfg) for _ in layers)

    def forward(self, *args: Any, memory_text: Tensor,  # type: ignore[override]
                text_attention_mask: Tensor, text_self_attention_masks: Tensor,
                position_ids: Tensor | None = None, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Encode picture and text.

        Args:
            args, kwargs: of :class:`DeformableEncoder`.
            memory_text: words (B, T, C).
            text_attention_mask: (B, T) bool, True = padding.
            text_self_attention_masks: (B, T, T) bool, True where a word may attend to another.
            position_ids: (B, T) number of each word in its phrase; None: in the text.

        Returns:
            Memory of the picture (B, L, C) and of the text (B, T, C).

        Raises:
            ValueError: if the grids do not hold the tokens.
        """
        if position_ids is None:
            position_ids = torch.arange(memory_text.shape[1], device=memory_text.device).float()
            position_ids = position_ids.expand(memory_text.shape[:2])
        pos = get_text_sine_pos_embed(position_ids[..., None], num_pos_feats=self.embed_dims,
                                      exchange_xy=False)
        self._words = _Words(text_attention_mask, ~text_self_attention_masks, pos)
        self._text = memory_text
        try:
            return super().forward(*args, **kwargs), self._text
        finally:
            del self._words, self._text

    def _encode(self, x: Tensor, position: int, hw_shapes: HWShapes | None, mask: Tensor | None,
                packing: Packing | None) -> tuple[Tensor, Tensor | None]:
        layer = position + 1
        if layer < self.num_layers:
            x, text = run_block(self.fusion_layers[layer], x, self._text, mask,
                                self._words.padding,
                                recompute=layer < self.num_cp and self.training)
            words = self.text_layers[layer]
            self._text = words(
                query=text, query_pos=self._words.pos, key_padding_mask=None,
                attn_mask=self._words.blocked.repeat(words.self_attn.num_heads, 1, 1))
        return super()._encode(x, position, hw_shapes, mask, packing)


class GroundingDecoderLayer(GroundingDinoTransformerDecoderLayer):
    """mmdet's decoder layer of Grounding DINO without attention weights."""

    def _init_layers(self) -> None:
        self.self_attn = MultiheadAttention(**self.self_attn_cfg)
        self.cross_attn_text = MultiheadAttention(**self.cross_attn_text_cfg)
        self.cross_attn = MultiScaleDeformableAttention(**self.cross_attn_cfg)
        self.embed_dims = self.self_attn.embed_dims
        self.ffn, self.norms = ffn_and_norms(self.ffn_cfg, self.norm_cfg, self.embed_dims, 4)


class GroundingDecoder(DinoDecoder):
    """Grounding DINO's decoder: DINO's, whose queries attend to the words as well.

    Args:
        coordinate_feats: as of :class:`DinoDecoder`; None: half of ``embed_dims``, as in the
            weights that mmdet published (onedl-mmdetection 3.5.1's own decoder does not run).
    """

    layer_type = GroundingDecoderLayer

    def _init_layers(self) -> None:
        if self.coordinate_feats is None:
            self.coordinate_feats = self.layer_cfg['self_attn_cfg']['embed_dims'] // 2
        super()._init_layers()


class GroundingDINO(Deformable, MMGroundingDINO):
    """Grounding DINO (Liu et al., ECCV 2024) with PEG in its encoder.

    Arguments are those of mmdet's GroundingDINO, with ``encoder`` as of :class:`GroundingEncoder`
    and ``encoder_pos`` as of :class:`DETR`.

    Raises:
        ValueError: as DeformableDETR.
    """

    encoder_type = GroundingEncoder
    decoder_type = GroundingDecoder
    no_relations = {**Deformable.no_relations, 'relation': 'queries of Grounding DINO attend to '
                    'words as well, and no release has both; leave it out'}

    def forward_encoder(  # type: ignore[override]
            self, feat: Tensor, feat_mask: Tensor | None, feat_pos: Tensor, spatial_shapes: Tensor,
            text_dict: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """As mmdet's, with the grids."""
        valid = text_dict['text_token_mask']
        memory, memory_text = self.encoder(
            feat, feat_pos, feat_mask, spatial_shapes, memory_text=text_dict['embedded'],
            text_attention_mask=~valid, text_self_attention_masks=text_dict['masks'],
            position_ids=text_dict['position_ids'], **kwargs)
        return dict(memory=memory, memory_mask=feat_mask, spatial_shapes=spatial_shapes,
                    memory_text=memory_text, text_token_mask=valid)


__all__ = ['GroundingDINO']
