"""Pixel decoders of MaskFormer and Mask2Former with position encodings in their encoders."""
from __future__ import annotations

import copy

import torch
from mmdet.models.layers import MSDeformAttnPixelDecoder as MMMSDeformAttnPixelDecoder
from mmdet.models.layers import TransformerEncoderPixelDecoder as MMTransformerEncoderPixelDecoder
from mmengine.model import BaseModule
from torch import Tensor, nn

from mmposenc.config_types import ConfigType
from mmposenc.detr.encoders import DetrEncoder
from mmposenc.encodings.base import reset_encodings

from ...stand_ins import with_children
from .encoders import DeformableEncoder, one_layer_config
from .positions import (
    AbsoluteKind,
    build_position,
    pop_absolute,
    position_tokens,
    replaced_sines,
)


class _Encoded(BaseModule):
    """A mixin that replaces the encoder of one of mmdet's pixel decoders; for detectors see
    :class:`mmposenc.openmmlab.mmdet.detr.encoded.Encoded`."""

    encoder_type: type[DetrEncoder]
    encodings_in = 'encoder'
    #: The name that mmdet's class gives the module that computes positions.
    sine_name: str

    def __init__(self, *args: object, encoder: ConfigType, **kwargs: object) -> None:
        cfg = copy.copy(encoder)
        encoder_pos = pop_absolute(cfg)
        built = self.encoder_type(**cfg)
        super().__init__(*args, encoder=one_layer_config(built, cfg), **kwargs)
        self.encoder = built
        self.replaced_encodings = replaced_sines(encoder_pos, cfg.get('pos_encoding'))
        if encoder_pos != 'sine':
            setattr(self, self.sine_name, MapPositions(encoder_pos, built.embed_dims))

    def init_weights(self) -> None:
        """Initialise as mmdet does, except that encodings keep their own initial values."""
        super().init_weights()
        reset_encodings(self.encoder)

    def forward(self, feats: list[Tensor], *args: object) -> tuple[Tensor, Tensor | list[Tensor]]:
        """Decode as mmdet does; the encoder also gets the grids."""
        grids = self._encoder_arguments(feats)
        knowing = with_children(
            self, {'encoder': lambda **kwargs: self.encoder(**{**kwargs, **grids})})
        return super(_Encoded, knowing).forward(feats, *args)


class TransformerEncoderPixelDecoder(_Encoded, MMTransformerEncoderPixelDecoder):
    """Pixel decoder of MaskFormer (Cheng et al., NeurIPS 2021) with encodings in its encoder.

    Args:
        encoder: arguments of :class:`DetrEncoder`, including relative encodings, and
            ``encoder_pos`` as in :class:`DETR`.
        args, kwargs: arguments of mmdet's class.

    Raises:
        ValueError: positions or encodings do not fit, or ``skip_padding=True``.
    """

    encoder_type = DetrEncoder
    sine_name = 'positional_encoding'

    def __init__(self, *args: object, encoder: ConfigType, **kwargs: object) -> None:
        if encoder.get('skip_padding'):
            raise ValueError('encoder.skip_padding=True: the convolutions after the encoder read '
                             'padded tokens too; leave it out')
        super().__init__(*args, encoder={**encoder, 'skip_padding': False}, **kwargs)

    def _encoder_arguments(self, feats: list[Tensor]) -> dict[str, object]:
        return dict(spatial_shapes=tuple(feats[-1].shape[-2:]))


class MSDeformAttnPixelDecoder(_Encoded, MMMSDeformAttnPixelDecoder):
    """Pixel decoder of Mask2Former (Cheng et al., CVPR 2022) with PEG in its encoder.

    mmdet passes no padding mask to this pixel decoder, nor does the authors' code: padded cells
    take part in attention, and encodings treat them as image.

    Args:
        encoder: arguments of :class:`DeformableEncoder`, and ``encoder_pos`` as in :class:`DETR`;
            with None the embedding of the level is still added.
        args, kwargs: arguments of mmdet's class.

    Raises:
        ValueError: positions or encodings do not fit, or a relative encoding is given: deformable
            attention has no logits of pairs of tokens.
    """

    encoder_type = DeformableEncoder
    sine_name = 'postional_encoding'

    def _encoder_arguments(self, feats: list[Tensor]) -> dict[str, object]:
        maps = feats[::-1][:self.num_encoder_levels]
        # mmdet's mask is False everywhere; None has the same effect.
        return dict(hw_shapes=[tuple(x.shape[-2:]) for x in maps], key_padding_mask=None)


class MapPositions(nn.Module):
    """An absolute encoding as a map, instead of mmdet's sines and cosines.

    Args:
        kind: 'learned', None, or the config of an absolute encoding.
        embed_dims: channels.

    Raises:
        ValueError: ``kind`` is something else.
    """

    def __init__(self, kind: AbsoluteKind, embed_dims: int) -> None:
        super().__init__()
        self.kind, self.embed_dims = kind, embed_dims
        # Configs exclude parameters with this name from weight decay.
        self.encoder_pos_encodings = build_position(kind, embed_dims, 'encoder.encoder_pos')

    def forward(self, mask: Tensor) -> Tensor:
        """The positions (B, C, H, W) for a padding mask (B, H, W), True = padding."""
        like = torch.zeros(mask.shape[0], self.embed_dims, *mask.shape[1:], device=mask.device)
        tokens = position_tokens(self.kind, self.encoder_pos_encodings, nn.Identity(), like, mask)
        return like if tokens is None else tokens.transpose(1, 2).unflatten(2, mask.shape[1:])


__all__ = ['MSDeformAttnPixelDecoder', 'TransformerEncoderPixelDecoder']
