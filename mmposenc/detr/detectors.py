"""DETR and Deformable DETR whose encoders take position encodings."""
from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from mmdet.models.detectors import DETR as MMDETR
from mmdet.models.detectors import DeformableDETR as MMDeformableDETR
from mmdet.models.layers import SinePositionalEncoding
from mmengine.model import BaseModule
from torch import Tensor, nn

from .encoders import DeformableDecoder, DeformableEncoder, DetrDecoder, DetrEncoder
from .neck import ChannelMapper
from .positions import (
    build_position,
    flat,
    masks_exactly,
    padding_masks,
    position_tokens,
    reset_encodings,
)


class _EncodedPositions:
    """What both detectors share: building the parts, absolute positions, initialisation."""

    def _init_positions(self: Any) -> None:
        """Positions of the encoder and of the decoder's keys, out of the two configs."""
        encoder, decoder = copy.copy(self.encoder), copy.copy(self.decoder)
        self.encoder_pos = encoder.pop('encoder_pos', 'sine')
        self.key_pos = decoder.pop('key_pos', 'sine')
        self.encoder, self.decoder = encoder, decoder
        self.positional_encoding = SinePositionalEncoding(**self.positional_encoding)

    def _build_positions(self: Any) -> None:
        self.embed_dims = self.encoder.embed_dims
        if self.decoder.embed_dims != self.embed_dims:
            raise ValueError(f'the encoder has embed_dims={self.embed_dims} and the decoder '
                             f'{self.decoder.embed_dims}; they must be equal')
        num_feats = self.positional_encoding.num_feats
        if num_feats * 2 != self.embed_dims:
            raise ValueError(f'positional_encoding.num_feats={num_feats} must be half of the '
                             f"encoder's embed_dims={self.embed_dims}")
        # The name is the one that configs keep weight decay off.
        self.encoder_pos_encodings = build_position(
            self.encoder_pos, self.embed_dims, 'encoder.encoder_pos')
        self.key_pos_encodings = build_position(self.key_pos, self.embed_dims, 'decoder.key_pos')

    def init_weights(self: Any) -> None:
        """As mmdet, except that encodings keep what they start from, and a checkpoint of the whole
        detector (``init_cfg``) is not overwritten."""
        cfg = self.init_cfg
        if isinstance(cfg, dict) and cfg.get('type') == 'Pretrained':
            BaseModule.init_weights(self)
            return
        super().init_weights()  # type: ignore[misc]
        reset_encodings(self.encoder)

    def extract_feat(self: Any, batch_inputs: Tensor) -> tuple[Tensor, ...]:
        """As mmdet; this project's ChannelMapper is told the images' sizes."""
        if self.with_neck and isinstance(self.neck, ChannelMapper) and masks_exactly(self):
            shapes = getattr(batch_inputs, 'img_shapes', None)
            return self.neck(  # type: ignore[no-any-return]
                self.backbone(batch_inputs), shapes, tuple(batch_inputs.shape[-2:]))
        return super().extract_feat(batch_inputs)  # type: ignore[misc, no-any-return]

    def _masks(self: Any, features: Sequence[Tensor], samples: Sequence[Any] | None
               ) -> list[Tensor | None]:
        return padding_masks(samples, features, masks_exactly(self))


class DETR(_EncodedPositions, MMDETR):
    """DETR (Carion et al., ECCV 2020) with PEG (CPVT's first version, Sec. B.2) and iRPE (ICCV
    2021, Table 6) in its encoder.

    Args:
        encoder: arguments of :class:`DetrEncoder`, and ``encoder_pos``: the absolute encoding of
            the encoder's queries and keys: 'sine' (mmdet's, the detector's
            ``positional_encoding``), 'learned' (a table resized to each image), the config of an
            absolute encoding, or None ('w/o PE').
        decoder: arguments of mmdet's decoder, and ``key_pos``: the same choice for the keys that
            the object queries meet, 'sine' by default whatever the encoder has.
        Others as of mmdet's DETR.

    With no encoding and the same weights, results equal mmdet's. Without attention weights it is
    faster; masks go by whole cells where the backbone keeps padding out (``mask_padding``).

    Raises:
        ValueError: for options that contradict each other.
    """

    def _init_layers(self) -> None:
        self._init_positions()
        self.encoder = DetrEncoder(**self.encoder)
        self.decoder = DetrDecoder(**self.decoder)
        self._build_positions()
        self.query_embedding = nn.Embedding(self.num_queries, self.embed_dims)

    def pre_transformer(self, img_feats: tuple[Tensor, ...],
                        batch_data_samples: Sequence[Any] | None = None
                        ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Tokens, mask, grid and positions of the last map, for the encoder; mask and positions for
        the decoder."""
        feature = img_feats[-1]
        mask = self._masks([feature], batch_data_samples)[0]
        args = (self.positional_encoding, feature, mask)
        encoder_pos = position_tokens(self.encoder_pos, self.encoder_pos_encodings, *args)
        if self.key_pos == 'sine' and self.encoder_pos == 'sine':
            key_pos = encoder_pos
        else:
            key_pos = position_tokens(self.key_pos, self.key_pos_encodings, *args)
        flat_mask = None if mask is None else mask.flatten(1)
        return (dict(feat=flat(feature), feat_mask=flat_mask, feat_pos=encoder_pos,
                     spatial_shapes=[(feature.shape[-2], feature.shape[-1])]),
                dict(memory_mask=flat_mask, memory_pos=key_pos))

    def forward_encoder(self, feat: Tensor, feat_mask: Tensor | None, feat_pos: Tensor | None,
                        spatial_shapes: list[tuple[int, int]] | None = None) -> dict[str, Tensor]:
        """As mmdet's, with the grid."""
        return dict(memory=self.encoder(feat, feat_pos, feat_mask, spatial_shapes=spatial_shapes))


class DeformableDETR(_EncodedPositions, MMDeformableDETR):
    """Deformable DETR (Zhu et al., ICLR 2021), on one level or several, with PEG in its encoder.

    Args:
        encoder: arguments of :class:`DeformableEncoder`, and ``encoder_pos`` as of :class:`DETR`;
            the embedding of the level stays with None.
        Others as of mmdet's DeformableDETR. Its decoder samples the memory and has no key
        encoding.

    Raises:
        ValueError: for options that contradict each other.
    """

    def _init_layers(self) -> None:
        if 'key_pos' in self.decoder:
            raise ValueError(f'decoder.key_pos={self.decoder["key_pos"]!r}: the decoder of '
                             f'Deformable DETR has no keys; leave it out')
        self._init_positions()
        self.key_pos = None
        self.encoder = DeformableEncoder(**self.encoder)
        self.decoder = DeformableDecoder(**self.decoder)
        self._build_positions()
        for name, module in (('encoder', self.encoder.layers[0].self_attn),
                             ('decoder', self.decoder.layers[0].cross_attn)):
            if module.num_levels != self.num_feature_levels:
                raise ValueError(f'num_feature_levels={self.num_feature_levels}, but the {name} '
                                 f'has num_levels={module.num_levels}; they must be equal')
        self.level_embed = nn.Parameter(torch.empty(self.num_feature_levels, self.embed_dims))
        if self.as_two_stage:
            self.memory_trans_fc = nn.Linear(self.embed_dims, self.embed_dims)
            self.memory_trans_norm = nn.LayerNorm(self.embed_dims)
            self.pos_trans_fc = nn.Linear(self.embed_dims * 2, self.embed_dims * 2)
            self.pos_trans_norm = nn.LayerNorm(self.embed_dims * 2)
        else:
            self.query_embedding = nn.Embedding(self.num_queries, self.embed_dims * 2)
            self.reference_points_fc = nn.Linear(self.embed_dims, 2)

    def pre_transformer(self, mlvl_feats: tuple[Tensor, ...],
                        batch_data_samples: Sequence[Any] | None = None
                        ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Tokens, masks, grids and positions of all levels."""
        if len(mlvl_feats) != self.num_feature_levels:
            raise ValueError(f'the neck gives {len(mlvl_feats)} maps, but num_feature_levels='
                             f'{self.num_feature_levels}')
        batch = mlvl_feats[0].shape[0]
        masks = self._masks(mlvl_feats, batch_data_samples)
        shapes = [(f.shape[-2], f.shape[-1]) for f in mlvl_feats]
        positions = []
        for level, (feature, mask) in enumerate(zip(mlvl_feats, masks, strict=True)):
            position = position_tokens(self.encoder_pos, self.encoder_pos_encodings,
                                       self.positional_encoding, feature, mask)
            embed = self.level_embed[level].view(1, 1, -1)
            positions.append(embed.expand(batch, feature[0, 0].numel(), -1) if position is None
                             else position + embed)
        mask_flat, ratios = None, mlvl_feats[0].new_ones(batch, len(shapes), 2)
        if any(mask is not None for mask in masks):
            whole = [torch.zeros(batch, *hw, dtype=torch.bool, device=ratios.device)
                     if mask is None else mask for mask, hw in zip(masks, shapes, strict=True)]
            mask_flat = torch.cat([mask.flatten(1) for mask in whole], 1)
            ratios = torch.stack([self.get_valid_ratio(mask) for mask in whole], 1)
        spatial_shapes = torch.tensor(shapes, device=ratios.device)
        starts = [0]
        for height, width in shapes[:-1]:
            starts.append(starts[-1] + height * width)
        shared = dict(spatial_shapes=spatial_shapes, valid_ratios=ratios,
                      level_start_index=torch.tensor(starts, device=ratios.device))
        return (dict(feat=torch.cat([flat(f) for f in mlvl_feats], 1), feat_mask=mask_flat,
                     feat_pos=torch.cat(positions, 1), hw_shapes=shapes, **shared),
                dict(memory_mask=mask_flat, **shared))

    def forward_encoder(self, feat: Tensor, feat_mask: Tensor | None, feat_pos: Tensor,
                        spatial_shapes: Tensor, level_start_index: Tensor, valid_ratios: Tensor,
                        hw_shapes: list[tuple[int, int]] | None = None) -> dict[str, Any]:
        """As mmdet's, with the grids."""
        memory = self.encoder(feat, feat_pos, feat_mask, spatial_shapes, level_start_index,
                              valid_ratios, hw_shapes=hw_shapes)
        return dict(memory=memory, memory_mask=feat_mask, spatial_shapes=spatial_shapes)

    def pre_decoder(self, memory: Tensor, memory_mask: Tensor | None, spatial_shapes: Tensor
                    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """As mmdet's; with two stages and a backbone that keeps padding out, no padded token is
        picked as a proposal before the last valid one."""
        if not self.as_two_stage or memory_mask is None or not masks_exactly(self):
            return super().pre_decoder(memory, memory_mask, spatial_shapes)  # type: ignore[no-any-return]
        # Finite: the loss multiplies logits by labels of zero.
        hook = self.bbox_head.cls_branches[self.decoder.num_layers].register_forward_hook(
            lambda module, args, out: out.masked_fill(memory_mask[..., None], -1e4))
        try:
            return super().pre_decoder(memory, memory_mask, spatial_shapes)  # type: ignore[no-any-return]
        finally:
            hook.remove()


__all__ = ['DETR', 'DeformableDETR']
