"""The head of EoMT for instances: Mask2Former's losses and predictions, for a backbone that
predicts by itself."""
from __future__ import annotations

from typing import Any

from mmdet.models.dense_heads import Mask2FormerHead
from mmdet.registry import MODELS, TASK_UTILS
from mmengine.config import ConfigDict
from mmengine.model import BaseModule
from torch import Tensor

#: The loss of masks of Mask2Former (Cheng et al., CVPR 2022, Sec. 3.3), which EoMT's release uses
#: too.
_MASK_LOSS: dict[str, Any] = dict(
    type='mmdet.CrossEntropyLoss', use_sigmoid=True, reduction='mean', loss_weight=5.0)
_DICE_LOSS: dict[str, Any] = dict(
    type='mmdet.DiceLoss', use_sigmoid=True, activate=True, reduction='mean', naive_dice=True,
    eps=1.0, loss_weight=5.0)
_TRAIN_CFG: dict[str, Any] = dict(
    num_points=12544, oversample_ratio=3.0, importance_sample_ratio=0.75,
    assigner=dict(type='mmdet.HungarianAssigner', match_costs=[
        dict(type='mmdet.ClassificationCost', weight=2.0),
        dict(type='mmdet.CrossEntropyLossCost', weight=5.0, use_sigmoid=True),
        dict(type='mmdet.DiceCost', weight=5.0, pred_act=True, eps=1.0)]),
    sampler=dict(type='mmdet.MaskPseudoSampler'))


class EoMTHead(Mask2FormerHead):
    """mmdet's Mask2FormerHead without layers, on the predictions of
    :class:`mmposenc.backbones.EoMT`; ``panoptic_head`` of mmdet's Mask2Former detector.

    Args:
        num_things_classes, num_stuff_classes: numbers of classes, together those of the backbone.
        num_queries: number of queries of the backbone.
        loss_cls, loss_mask, loss_dice: losses; None: those of Mask2Former, with a weight of 0.1 for
            no object.
        train_cfg: what differs from Mask2Former's points, assigner and sampler.
        test_cfg, init_cfg: as in mmdet.
    """

    def __init__(self, *, num_things_classes: int = 80, num_stuff_classes: int = 0,
                 num_queries: int = 100, loss_cls: dict[str, Any] | None = None,
                 loss_mask: dict[str, Any] | None = None, loss_dice: dict[str, Any] | None = None,
                 train_cfg: dict[str, Any] | None = None, test_cfg: dict[str, Any] | None = None,
                 init_cfg: dict[str, Any] | None = None) -> None:
        # The constructor of Mask2FormerHead would build decoders.
        BaseModule.__init__(self, init_cfg)
        self.num_things_classes, self.num_stuff_classes = num_things_classes, num_stuff_classes
        self.num_classes, self.num_queries = num_things_classes + num_stuff_classes, num_queries
        loss_cls = loss_cls or dict(
            type='mmdet.CrossEntropyLoss', use_sigmoid=False, loss_weight=2.0, reduction='mean',
            class_weight=[1.0] * self.num_classes + [0.1])
        self.class_weight = loss_cls['class_weight']
        self.loss_cls = MODELS.build(loss_cls)
        self.loss_mask = MODELS.build(loss_mask or _MASK_LOSS)
        self.loss_dice = MODELS.build(loss_dice or _DICE_LOSS)
        self.test_cfg, self.train_cfg = test_cfg, ConfigDict({**_TRAIN_CFG, **(train_cfg or {})})
        self.assigner = TASK_UTILS.build(self.train_cfg.assigner)
        self.sampler = TASK_UTILS.build(self.train_cfg.sampler, default_args=dict(context=self))
        self.num_points = self.train_cfg.num_points
        self.oversample_ratio = self.train_cfg.oversample_ratio
        self.importance_sample_ratio = self.train_cfg.importance_sample_ratio

    def init_weights(self) -> None:
        """Do nothing, because the head has no weights."""

    def forward(self, x: tuple[tuple[Tensor, ...], tuple[Tensor, ...]],
                batch_data_samples: object = None
                ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Return what the backbone has predicted, by level.

        Raises:
            ValueError: the backbone has another number of queries or classes.
        """
        queries, logits = x[0][-1].shape[1:]
        if (queries, logits) != (self.num_queries, self.num_classes + 1):
            raise ValueError(f'num_queries={self.num_queries} and {self.num_classes} classes of '
                             f'{type(self).__name__} must be those of the backbone, which has '
                             f'num_queries={queries} and num_classes={logits - 1}')
        return x

    def get_targets(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The targets of mmdet, with the number of masks of Mask2Former's release: mmdet counts one
        mask for an image without objects."""
        labels, label_weights, mask_targets, mask_weights, _, *others = super().get_targets(
            *args, **kwargs)
        count = sum(len(each) for each in mask_targets)
        return labels, label_weights, mask_targets, mask_weights, count, *others
