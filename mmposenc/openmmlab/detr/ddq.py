"""DDQ DETR; a file of its own, as mmdet before 3.2 has none and the others need not wait for it."""
from __future__ import annotations

from mmdet.models.detectors import DDQDETR as MMDDQDETR
from mmdet.models.layers.transformer import DDQTransformerDecoder

from .decoders import DeformableDecoder
from .detectors import Deformable


class DDQDecoder(DDQTransformerDecoder, DeformableDecoder):
    """DDQ's decoder on the layers of :class:`DeformableDecoder`."""


class DDQDETR(Deformable, MMDDQDETR):
    """DDQ DETR (Zhang et al., CVPR 2023) with PEG in its encoder.

    Arguments are those of mmdet's DDQDETR, with ``encoder`` as of :class:`DeformableDETR`.

    Raises:
        ValueError: as DeformableDETR.
    """

    decoder_type = DDQDecoder
    no_relations = {**Deformable.no_relations, 'relation': 'DDQ picks other queries in each layer, '
                    'whose boxes are not those of the layer before; leave it out'}


__all__ = ['DDQDETR']
