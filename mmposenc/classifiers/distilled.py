"""Hard distillation through a token, DeiT's way."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from mmpretrain.models import DeiTClsHead, ImageClassifier
from torch import Tensor, nn

from ..registry import MODELS
from .teacher import hard_labels


class DistillationHead(DeiTClsHead):
    """mmpretrain's DeiTClsHead with the loss of hard distillation (DeiT, Touvron et al., ICML 2021,
    Eq. 3): (1 - alpha) CE(class token, label) + alpha CE(distillation token, teacher's decision).

    Args:
        alpha: weight of the teacher, in [0, 1].
        kwargs: arguments of DeiTClsHead; ``loss`` is that of the class token.

    Predictions are the mean of both tokens' logits, as DeiTClsHead's. Its weights start from a
    truncated normal of 0.02, as the release's.
    """

    def __init__(self, alpha: float = 0.5, **kwargs: Any) -> None:
        if not 0.0 <= alpha <= 1.0:
            raise ValueError(f'alpha={alpha} must be in [0, 1]')
        kwargs.setdefault('init_cfg', dict(type='TruncNormal', layer='Linear', std=0.02))
        super().__init__(**kwargs)
        self.alpha = alpha

    def distillation_loss(self, feats: tuple[Any, ...], data_samples: list[Any],
                          teacher_labels: Tensor) -> dict[str, Tensor]:
        """Both losses, weighted.

        Args:
            feats: of the backbone; the last is a pair (class token, distillation token).
            data_samples: with labels, or scores where the batch is mixed.
            teacher_labels: (B,) long.
        """
        cls_token, dist_token = self.pre_logits(feats)
        losses = self._get_loss(self.layers.head(cls_token), data_samples)
        scores = self.layers.head_dist(dist_token)
        taught = nn.functional.cross_entropy(scores.float(), teacher_labels)
        # mmengine logs the sum under 'loss', the name mmpretrain gives to this part.
        losses['loss_cls'] = (1 - self.alpha) * losses.pop('loss')
        return {**losses, 'loss_distill': self.alpha * taught}


class DistilledClassifier(ImageClassifier):
    """mmpretrain's ImageClassifier, taught by another classifier (DeiT, Sec. 4).

    The teacher sees the student's batches, mixed images included; it is frozen, in evaluation, and
    no part of the model: neither of its parameters nor of its checkpoints. Testing needs none.

    Args:
        teacher: config of a classifier with weights in its ``init_cfg``, loaded by
            ``init_weights`` (the runner calls it before training), or a ready module; called as
            ``teacher(inputs, mode='tensor')``, it returns logits. None: only for testing.
        kwargs: arguments of ImageClassifier; its backbone returns two tokens
            (``distilled=True``), its head is a :class:`DistillationHead`.

    Raises:
        ValueError: for a head that distils nothing, or a teacher without weights.
    """

    def __init__(self, teacher: nn.Module | dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not isinstance(self.head, DistillationHead):
            raise ValueError(f'head is a {type(self.head).__name__}; '
                             f"type='mmposenc.DistillationHead' is required")
        self._ready = isinstance(teacher, nn.Module)
        if isinstance(teacher, dict):
            if not teacher.get('init_cfg'):
                raise ValueError("teacher has no init_cfg: with random weights it teaches nothing; "
                                 "add init_cfg=dict(type='Pretrained', checkpoint=...)")
        built: Any = MODELS.build(teacher) if isinstance(teacher, dict) else teacher
        # In a list: no submodule, so that state_dict and parameters are the student's alone.
        self._teacher: list[Any] = [] if built is None else [built.requires_grad_(False).eval()]

    def init_weights(self) -> None:
        """Initialise the student; load the teacher."""
        super().init_weights()
        if not self._ready and self._teacher:
            self._teacher[0].init_weights()
            self._teacher[0].requires_grad_(False).eval()
            self._ready = True

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> DistilledClassifier:
        """Moves the teacher along with the student."""
        for teacher in self._teacher:
            teacher._apply(fn, recurse)
        super()._apply(fn, recurse)
        return self

    def loss(self, inputs: Tensor, data_samples: list[Any]) -> dict[str, Tensor]:
        """Losses of a batch, see :class:`DistillationHead`.

        Raises:
            RuntimeError: without a teacher, or before ``init_weights``.
        """
        if not self._teacher or not self._ready:
            why = 'was never loaded: call init_weights()' if self._teacher else 'is None'
            raise RuntimeError(f'the teacher {why}')
        with torch.no_grad():
            labels = hard_labels(self._teacher[0], inputs, self.head.num_classes)
        return self.head.distillation_loss(self.extract_feat(inputs), data_samples, labels)
