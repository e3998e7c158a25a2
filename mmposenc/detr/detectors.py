"""The detectors of mmdet's DETR family whose encoders take position encodings."""
from __future__ import annotations

from mmdet.models import detectors as mm

from .decoders import DeformableDecoder, DetrDecoder, DinoDecoder
from .encoded import Deformable, Dense
from .mmdet_encoders import DABEncoder


class DETR(Dense, mm.DETR):
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

    decoder_type = DetrDecoder


class ConditionalDETR(Dense, mm.ConditionalDETR):
    """Conditional DETR (Meng et al., ICCV 2021) with encodings in its encoder.

    Arguments are those of mmdet's ConditionalDETR, with ``encoder`` and ``decoder.key_pos`` as of
    :class:`DETR`; the decoder is mmdet's.

    Raises:
        ValueError: as DETR; for ``decoder.key_pos=None``.
    """

    needs_key_pos = ('object queries find what they look for by the positions of keys, which '
                     'attention meets beside their contents')


class DABDETR(Dense, mm.DABDETR):
    """DAB-DETR (Liu et al., ICLR 2022) with encodings in its encoder.

    Arguments are those of mmdet's DABDETR, with ``encoder`` and ``decoder.key_pos`` as of
    :class:`DETR`; the decoder is mmdet's.

    Raises:
        ValueError: as DETR; for ``decoder.key_pos=None`` and ``encoder.encoder_pos=None``.
    """

    encoder_type = DABEncoder
    needs_encoder_pos = ('every layer of the encoder of DAB-DETR scales its absolute encoding '
                         '(query_scale), which would have nothing to scale')
    needs_key_pos = ConditionalDETR.needs_key_pos


class DeformableDETR(Deformable, mm.DeformableDETR):
    """Deformable DETR (Zhu et al., ICLR 2021), on one level or several, with PEG in its encoder.

    Args:
        encoder: arguments of :class:`DeformableEncoder`, and ``encoder_pos`` as of :class:`DETR`;
            the embedding of the level stays with None.
        Others as of mmdet's DeformableDETR. Its decoder samples the memory and has no key
        encoding.

    Raises:
        ValueError: for options that contradict each other; for a relative encoding, as deformable
            attention compares no pairs of tokens.
    """

    decoder_type = DeformableDecoder


class DINO(Deformable, mm.DINO):
    """DINO (Zhang et al., ICLR 2023) with PEG in its encoder.

    Arguments are those of mmdet's DINO, with ``encoder`` as of :class:`DeformableDETR`.

    Raises:
        ValueError: as DeformableDETR.
    """

    decoder_type = DinoDecoder


__all__ = ['DABDETR', 'DETR', 'DINO', 'ConditionalDETR', 'DeformableDETR']
