"""Grounding DINO: a detector whose encoder and decoder also attend to a text."""
from __future__ import annotations

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
from mmposenc.config_types import ConfigType
from mmposenc.detr.attention import MultiheadAttention
from mmposenc.detr.layers import ffn_and_norms

from .decoders import DinoDecoder
from .deform_attention import MultiScaleDeformableAttention
from .encoded import Arguments, Deformable
from .encoders import DeformableEncoder


class GroundingEncoder(DeformableEncoder):
    """Encoder of Grounding DINO (Liu et al., ECCV 2024, Sec. 3.2) with encodings of the image.

    Before each layer, image and text tokens attend to each other (``fusion_layers``), and text
    tokens to each other (``text_layers``). Token encodings are applied after this fusion.

    Args:
        text_layer_cfg: config of mmdet's DetrTransformerEncoderLayer for the text.
        fusion_layer_cfg: config of mmdet's SingleScaleBiAttentionBlock.
        args, kwargs: arguments of :class:`DeformableEncoder`.

    Parameters have mmdet's names. Without encodings the results equal mmdet's.
    """

    def __init__(self, *args: object, text_layer_cfg: ConfigType,
                 fusion_layer_cfg: ConfigType, **kwargs: object) -> None:
        self.text_layer_cfg, self.fusion_layer_cfg = text_layer_cfg, fusion_layer_cfg
        super().__init__(*args, **kwargs)

    def _init_layers(self) -> None:
        super()._init_layers()
        layers = range(self.num_layers)
        self.text_layers = ModuleList(
            DetrTransformerEncoderLayer(**self.text_layer_cfg) for _ in layers)
        self.fusion_layers = ModuleList(
            SingleScaleBiAttentionBlock(**self.fusion_layer_cfg) for _ in layers)

    def forward(self, query: Tensor, query_pos: Tensor | None,  # type: ignore[override]
                key_padding_mask: Tensor | None, *args: object, memory_text: Tensor,
                text_attention_mask: Tensor, text_self_attention_masks: Tensor,
                position_ids: Tensor | None = None, **kwargs: object) -> tuple[Tensor, Tensor]:
        """Encode image and text.

        Args:
            query, query_pos, key_padding_mask, args, kwargs: arguments of
                :class:`DeformableEncoder`.
            memory_text: text tokens (B, T, C).
            text_attention_mask: (B, T) bool, True = padding.
            text_self_attention_masks: (B, T, T) bool, True where a token may attend to another.
            position_ids: (B, T), index of each token in its phrase; None: its index in the text.

        Returns:
            Memory of the image (B, L, C) and of the text (B, T, C).

        Raises:
            ValueError: the grids do not have L cells.
        """
        if position_ids is None:
            position_ids = torch.arange(memory_text.shape[1], device=memory_text.device).float()
            position_ids = position_ids.expand(memory_text.shape[:2])
        pos = get_text_sine_pos_embed(position_ids[..., None], num_pos_feats=self.embed_dims,
                                      exchange_xy=False)
        texts, blocked = [memory_text], ~text_self_attention_masks

        def fuse(number: int, x: Tensor) -> Tensor:
            x, text = run_block(self.fusion_layers[number], x, texts[-1], key_padding_mask,
                                text_attention_mask,
                                recompute=number < self.num_cp and self.training)
            words = self.text_layers[number]
            texts.append(words(
                query=text, query_pos=pos, key_padding_mask=None,
                attn_mask=blocked.repeat(words.self_attn.num_heads, 1, 1)))
            return x

        memory = super().forward(query, query_pos, key_padding_mask, *args, before=fuse, **kwargs)
        return memory, texts[-1]


class GroundingDecoderLayer(GroundingDinoTransformerDecoderLayer):
    """mmdet's decoder layer of Grounding DINO; see :class:`DetrDecoderLayer`."""

    def _init_layers(self) -> None:
        self.self_attn = MultiheadAttention(**self.self_attn_cfg)
        self.cross_attn_text = MultiheadAttention(**self.cross_attn_text_cfg)
        self.cross_attn = MultiScaleDeformableAttention(**self.cross_attn_cfg)
        self.embed_dims = self.self_attn.embed_dims
        self.ffn, self.norms = ffn_and_norms(self.ffn_cfg, self.norm_cfg, self.embed_dims, 4)


class GroundingDecoder(DinoDecoder):
    """Grounding DINO's decoder: DINO's, whose queries also attend to the text.

    Args:
        coordinate_feats: as in :class:`DinoDecoder`; None: half of ``embed_dims``, as in mmdet's
            published weights (the decoder of onedl-mmdetection 3.5.1 itself does not run).
    """

    layer_type = GroundingDecoderLayer

    def _init_layers(self) -> None:
        if self.coordinate_feats is None:
            self.coordinate_feats = self.layer_cfg['self_attn_cfg']['embed_dims'] // 2
        super()._init_layers()


class GroundingDINO(Deformable, MMGroundingDINO):
    """Grounding DINO (Liu et al., ECCV 2024) with PEG in its encoder.

    Arguments are those of mmdet's GroundingDINO, with ``encoder`` as in :class:`GroundingEncoder`
    and ``encoder_pos`` as in :class:`DETR`.

    Raises:
        ValueError: as in DeformableDETR.
    """

    encoder_type = GroundingEncoder
    decoder_type = GroundingDecoder
    needs_encoder = 'the encoder of Grounding DINO joins image and text'
    no_relations = {**Deformable.no_relations, 'relation': 'it is not defined for queries of '
                    'Grounding DINO, which also attend to the text; leave it out'}

    def forward_encoder(  # type: ignore[override]
            self, feat: Tensor, feat_mask: Tensor | None, feat_pos: Tensor, spatial_shapes: Tensor,
            text_dict: dict[str, Tensor], **kwargs: object) -> Arguments:
        """Encode as mmdet does, with the grids as a further argument."""
        valid = text_dict['text_token_mask']
        memory, memory_text = self.encoder(
            feat, feat_pos, feat_mask, spatial_shapes, memory_text=text_dict['embedded'],
            text_attention_mask=~valid, text_self_attention_masks=text_dict['masks'],
            position_ids=text_dict['position_ids'], **kwargs)
        return dict(memory=memory, memory_mask=feat_mask, spatial_shapes=spatial_shapes,
                    memory_text=memory_text, text_token_mask=valid)


__all__ = ['GroundingDINO']
