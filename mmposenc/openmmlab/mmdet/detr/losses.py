"""Losses of classes that also teach how well the box of a query fits."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from mmdet.models.losses import QualityFocalLoss
from torch import Tensor

from mmposenc.encodings.checks import check_at_least


class MatchedVarifocalLoss(QualityFocalLoss):
    """RT-DETR's varifocal loss (Zhang et al., CVPR 2021, Eq. 2) of the queries that are matched to
    objects: with t = 1 for the class of the object and q the IoU of the boxes there, otherwise 0,
    and p the score, the cross-entropy of p and q has the weight alpha p^gamma (1 - t) + q.

    mmdet's heads of the DETR family give the IoU of matched boxes to a loss of this kind.

    Args:
        alpha: weight of the scores of other classes and queries.
        gamma: exponent of scores.
        loss_weight: factor of the loss.

    Raises:
        ValueError: a negative number.
    """

    def __init__(self, alpha: float = 0.75, gamma: float = 2.0, loss_weight: float = 1.0) -> None:
        super().__init__(loss_weight=loss_weight)
        check_at_least(0, alpha=alpha, gamma=gamma)
        self.alpha, self.gamma = alpha, gamma

    def forward(self, pred: Tensor, target: tuple[Tensor, Tensor], weight: Tensor | None = None,
                avg_factor: float | Tensor | None = None, reduction_override: str | None = None
                ) -> Tensor:
        """The sum of the losses of all queries and classes, divided by ``avg_factor``.

        Args:
            pred: scores before the sigmoid (N, classes).
            target: class of each query (N,), ``classes`` for none; IoU of its box (N,).
            weight: (N,), or None.
            avg_factor: number of matched queries.
            reduction_override: only for mmdet's signature.
        """
        labels, ious = target
        known = torch.arange(pred.shape[1], device=pred.device)
        classes = (labels[:, None] == known).to(pred.dtype)
        score, factor = self._targets(pred.sigmoid(), classes, ious[:, None].to(pred))
        loss = F.binary_cross_entropy_with_logits(pred, score, reduction='none') * factor
        if weight is not None:
            loss = loss * weight[:, None]
        return self.loss_weight * loss.sum() / (1 if avg_factor is None else avg_factor)

    def _targets(self, scores: Tensor, classes: Tensor, ious: Tensor) -> tuple[Tensor, Tensor]:
        """What scores should be, and the weights of the cross-entropy."""
        wanted = classes * ious
        return wanted, self.alpha * scores.detach() ** self.gamma * (1 - classes) + wanted


class MatchabilityAwareLoss(MatchedVarifocalLoss):
    """DEIM's loss (Huang et al., CVPR 2025, Eq. 5): the cross-entropy of p and q^gamma has the
    weight alpha p^gamma (1 - t) + t, so that matches of low quality count, too.

    Args:
        alpha, gamma, loss_weight: as in :class:`MatchedVarifocalLoss`.
    """

    def __init__(self, alpha: float = 1.0, gamma: float = 1.5, loss_weight: float = 1.0) -> None:
        super().__init__(alpha, gamma, loss_weight)

    def _targets(self, scores: Tensor, classes: Tensor, ious: Tensor) -> tuple[Tensor, Tensor]:
        return (classes * ious ** self.gamma,
                self.alpha * scores.detach() ** self.gamma * (1 - classes) + classes)


class IoUAwareBCELoss(MatchedVarifocalLoss):
    """LW-DETR's and RF-DETR's loss (IA-BCE, Cai et al., 2024): a matched query should have the
    score p^alpha q^(1 - alpha), at least 0.01; others have the weight p^gamma, through which the
    gradient passes.

    Args:
        alpha: share of the score in its target, at most 1.
        gamma, loss_weight: as in :class:`MatchedVarifocalLoss`.

    Raises:
        ValueError: a negative number, or ``alpha`` above 1.
    """

    def __init__(self, alpha: float = 0.25, gamma: float = 2.0, loss_weight: float = 1.0) -> None:
        super().__init__(alpha, gamma, loss_weight)
        if alpha > 1:
            raise ValueError(f'alpha={alpha} must be <= 1')

    def _targets(self, scores: Tensor, classes: Tensor, ious: Tensor) -> tuple[Tensor, Tensor]:
        wanted = scores.detach() ** self.alpha * ious ** (1 - self.alpha)
        return (classes * wanted.clamp(min=0.01),
                torch.where(classes > 0, classes, scores ** self.gamma))


__all__ = ['IoUAwareBCELoss', 'MatchabilityAwareLoss', 'MatchedVarifocalLoss']
