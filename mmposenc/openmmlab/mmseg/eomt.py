"""The head of EoMT for semantic segmentation."""
from __future__ import annotations

from typing import Any

import torch
from mmseg.models.decode_heads import Mask2FormerHead
from torch import Tensor

from ..mmdet.eomt import EoMTHead


class EoMTDecodeHead(EoMTHead, Mask2FormerHead):
    """mmseg's Mask2FormerHead without layers, on the predictions of
    :class:`mmposenc.backbones.EoMT`: each class is a mask. Needs mmdet, as mmseg's does.

    Args:
        num_classes: number of classes, that of the backbone.
        align_corners, ignore_index: as in mmseg.
        options: ``num_queries``, losses, ``train_cfg`` and ``init_cfg`` of
            :class:`mmposenc.openmmlab.mmdet.EoMTHead`.
    """

    def __init__(self, *, num_classes: int, align_corners: bool = False, ignore_index: int = 255,
                 **options: Any) -> None:
        super().__init__(num_things_classes=num_classes, num_stuff_classes=0, **options)
        self.out_channels, self.align_corners = num_classes, align_corners
        self.ignore_index = ignore_index

    def forward(self, x: Any, batch_data_samples: object = None) -> Any:
        """Predict as the base class does. Without samples, as in an export, return the logits of
        classes (B, num_classes, H', W') by the last level: sums over the queries of the class's
        probability times that of the mask."""
        classes, masks = super().forward(x)
        if batch_data_samples is not None:
            return classes, masks
        probabilities: Tensor = classes[-1].softmax(-1)[..., :-1]
        return torch.einsum('bqc,bqhw->bchw', probabilities, masks[-1].sigmoid())
