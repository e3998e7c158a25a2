"""DDQ DETR, in a separate file because mmdet before 3.2 does not have it."""
from __future__ import annotations

from mmdet.models.detectors import DDQDETR as MMDDQDETR
from mmdet.models.layers.transformer import DDQTransformerDecoder

from .decoders import DeformableDecoder
from .detectors import Deformable


class DDQDecoder(DDQTransformerDecoder, DeformableDecoder):
    """DDQ's decoder on the layers of :class:`DeformableDecoder`."""


class DDQDETR(Deformable, MMDDQDETR):
    """DDQ DETR (Zhang et al., CVPR 2023) with PEG in its encoder.

    Arguments are those of mmdet's DDQDETR, with ``encoder`` as in :class:`DeformableDETR`.

    Raises:
        ValueError: as DeformableDETR.
    """

    decoder_type = DDQDecoder
    no_relations = {**Deformable.no_relations, 'relation': 'DDQ selects other queries in each '
                    'layer, and the boxes of the layer before are not theirs; leave it out'}


__all__ = ['DDQDETR']
