"""mmdet's detectors of the DETR family with this project's encoder: a mixin stands before each of
mmdet's classes."""
from __future__ import annotations

from mmdet.models import detectors as mm
from torch import Tensor

from mmposenc.detr.encoders import DetrEncoder

from .decoders import DeformableDecoder, DetrDecoder, DinoDecoder
from .encoded import AnyBatchDINO, Arguments, Deformable, Dense
from .encoders import DABEncoder


class DETR(Dense, mm.DETR):
    """DETR (Carion et al., ECCV 2020) with PEG (CPVT's first version, Sec. B.2) and iRPE (ICCV
    2021, Table 6) in its encoder.

    Args:
        encoder: arguments of :class:`DetrEncoder`, and ``encoder_pos``, the absolute encoding of
            the encoder's queries and keys: 'sine' (mmdet's ``positional_encoding``), 'learned' (a
            table resized to each image), the config of an absolute encoding, or None ('w/o PE').
        decoder: arguments of mmdet's decoder, and

            - ``key_pos``: the same choice for the keys of cross-attention, by default 'sine';
            - ``relation``: the config of a :class:`PositionRelation`, shared by all layers, for the
              self-attention of each layer but the first;
            - ``box_bias``: the config of a :class:`BoxRPB`, one for each layer, for
              cross-attention, from the boxes of the layer before.
        kwargs: arguments of mmdet's DETR.

    Without encodings, and with the same weights, results equal mmdet's. If the backbone masks
    padding (``mask_padding``), a cell counts as valid if it contains a valid pixel.

    Raises:
        ValueError: options contradict each other.
    """

    decoder_type = DetrDecoder


class ConditionalDETR(Dense, mm.ConditionalDETR):
    """Conditional DETR (Meng et al., ICCV 2021) with encodings in its encoder.

    Arguments are those of mmdet's ConditionalDETR, with ``encoder`` and the decoder's ``key_pos``,
    ``relation`` and ``box_bias`` as in :class:`DETR`; the decoder is mmdet's.

    Raises:
        ValueError: as in DETR, and for ``decoder.key_pos=None`` or other than 256 channels.
    """

    needs_key_pos = ('cross-attention of Conditional DETR compares positions of queries and keys '
                     'separately from their contents')

    def _check_encoder(self, encoder: DetrEncoder | None) -> None:
        if encoder is not None and encoder.embed_dims != 256:
            raise ValueError(f'encoder has embed_dims={encoder.embed_dims}; it must be 256: the '
                             f'decoder of Conditional DETR encodes points by as many numbers')

    def _initial_reference(self, decoder_args: Arguments) -> Tensor:
        return self.decoder.ref_point_head(decoder_args['query_pos']).sigmoid()


class DABDETR(Dense, mm.DABDETR):
    """DAB-DETR (Liu et al., ICLR 2022) with encodings in its encoder.

    Arguments are those of mmdet's DABDETR, with ``encoder`` and the decoder's ``key_pos``,
    ``relation`` and ``box_bias`` as in :class:`DETR`; biases use the anchors and are in every
    layer. The decoder is mmdet's.

    Raises:
        ValueError: as in DETR, and for ``decoder.key_pos=None`` or ``encoder.encoder_pos=None``.
    """

    encoder_type = DABEncoder
    needs_encoder_pos = ('every layer of the encoder of DAB-DETR scales its absolute encoding '
                         '(query_scale), which would have nothing to scale; name one beside '
                         "others: encoder_pos='sine', or --encoding sincos+peg")
    needs_key_pos = ConditionalDETR.needs_key_pos
    decoder_knows_boxes = True

    def _initial_reference(self, decoder_args: Arguments) -> Tensor:
        return decoder_args['query_pos'].sigmoid()


class DeformableDETR(Deformable, mm.DeformableDETR):
    """Deformable DETR (Zhu et al., ICLR 2021), on one level or several, with PEG in its encoder.

    Args:
        encoder: arguments of :class:`DeformableEncoder`, and ``encoder_pos`` as in :class:`DETR`;
            with None the embedding of the level is still added.
        decoder: arguments of mmdet's decoder, and ``relation`` as in :class:`DETR`. It samples the
            memory, so there is no ``key_pos``.
        kwargs: arguments of mmdet's DeformableDETR.

    Raises:
        ValueError: options contradict each other, or a relative encoding is given: deformable
            attention has no logits of pairs of tokens.
    """

    decoder_type = DeformableDecoder


class DINO(Deformable, AnyBatchDINO):
    """DINO (Zhang et al., ICLR 2023) with PEG in its encoder.

    Arguments are those of mmdet's DINO, with ``encoder`` and ``decoder.relation`` as in
    :class:`DeformableDETR`; denoising queries attend only to their own group.

    Raises:
        ValueError: as in DeformableDETR.
    """

    decoder_type = DinoDecoder


__all__ = ['DABDETR', 'DETR', 'DINO', 'ConditionalDETR', 'DeformableDETR']
