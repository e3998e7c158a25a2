"""DDQ DETR, in a separate file because mmdet before 3.2 does not have it."""
from __future__ import annotations

import torch
from mmdet.models.detectors import DDQDETR as MMDDQDETR
from mmdet.models.layers.transformer import DDQTransformerDecoder
from torch import Tensor, nn

from .decoders import DeformableDecoder
from .encoded import Deformable


class DDQDecoder(DDQTransformerDecoder, DeformableDecoder):
    """DDQ's decoder on the layers of :class:`DeformableDecoder`."""

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute as mmdet does. In the first training step mmdet makes branches of the
        head a part of the decoder, too; here they then get no second name in the state dict, which
        a new model would not have."""
        if name == 'aux_reg_branches':
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)


class DDQDETR(Deformable, MMDDQDETR):
    """DDQ DETR (Zhang et al., CVPR 2023) with PEG in its encoder.

    Arguments are those of mmdet's DDQDETR, with ``encoder`` as in :class:`DeformableDETR`.

    Raises:
        ValueError: as DeformableDETR.
    """

    decoder_type = DDQDecoder
    takes_num_queries = False
    no_relations = {**Deformable.no_relations, 'relation': 'DDQ selects other queries in each '
                    'layer, and the boxes of the layer before are not theirs; leave it out'}

    def _init_layers(self) -> None:
        super()._init_layers()
        for branch in (*self.bbox_head.cls_branches, *self.bbox_head.reg_branches):
            branch.register_forward_hook(_at_least_float32)


def _at_least_float32(module: nn.Module, args: tuple[Tensor], out: Tensor) -> Tensor:
    """Convert scores and boxes to float32 in mixed precision, as mmdet's loss of dense queries
    needs it."""
    return out.to(torch.promote_types(out.dtype, torch.float32))


__all__ = ['DDQDETR']
