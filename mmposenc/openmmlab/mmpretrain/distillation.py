"""Hard distillation of a classifier through a distillation token, as in DeiT."""
from __future__ import annotations

from collections.abc import Callable

import torch
from mmpretrain.models import DeiTClsHead, ImageClassifier
from mmpretrain.structures import DataSample
from torch import Tensor, nn

from ...backbones import load_pretrained
from ...backbones.optional_mmengine import is_pretrained
from ...config_types import ConfigType
from ...functional.image_sizes import checked_one_batch
from ...registry import MODELS


class DistillationHead(DeiTClsHead):
    """mmpretrain's DeiTClsHead with the loss of hard distillation (DeiT, Touvron et al., ICML 2021,
    Eq. 3): (1 - alpha) CE(class token, label) + alpha CE(distillation token, teacher's decision).

    Args:
        alpha: weight of the teacher's loss, in [0, 1].
        kwargs: arguments of DeiTClsHead; ``loss`` is the loss of the class token.

    Raises:
        ValueError: ``alpha`` is outside [0, 1].

    Predictions are the mean of both tokens' logits, as in DeiTClsHead. Weights are drawn from a
    truncated normal distribution of standard deviation 0.02, as in the authors' release.
    """

    def __init__(self, alpha: float = 0.5, **kwargs: object) -> None:
        if not 0.0 <= alpha <= 1.0:
            raise ValueError(f'alpha={alpha} must be in [0, 1]')
        kwargs.setdefault('init_cfg', dict(type='TruncNormal', layer='Linear', std=0.02))
        super().__init__(**kwargs)
        self.alpha = alpha

    def distillation_loss(self, feats: tuple[Tensor, ...], data_samples: list[DataSample],
                          teacher_labels: Tensor) -> dict[str, Tensor]:
        """Both losses, with their weights.

        Args:
            feats: outputs of the backbone; the last is (2, B, C), class tokens, then distillation
                tokens.
            data_samples: samples with labels, or with scores if the batch is mixed (Mixup).
            teacher_labels: (B,) long, the teacher's classes.

        Returns:
            The losses by name.
        """
        cls_token, dist_token = self.pre_logits(feats)
        losses = self._get_loss(self.layers.head(cls_token), data_samples)
        scores = self.layers.head_dist(dist_token)
        taught = nn.functional.cross_entropy(scores.float(), teacher_labels)
        # The name under which mmengine logs the sum of all losses is 'loss', so this part is
        # renamed.
        losses['loss_cls'] = (1 - self.alpha) * losses.pop('loss')
        return {**losses, 'loss_distill': self.alpha * taught}


class DistilledClassifier(ImageClassifier):
    """mmpretrain's ImageClassifier trained by distillation from a teacher (DeiT, Sec. 4).

    The teacher sees the student's batches, including mixed images. It is frozen and in evaluation
    mode. Its weights are not in ``parameters()`` or ``state_dict()``. Testing needs no teacher.

    Args:
        teacher: config of a classifier with ``init_cfg=dict(type='Pretrained', checkpoint=...)``,
            whose weights ``init_weights`` loads (the runner calls it before training), or a module;
            mmpretrain's TimmClassifier has timm's RegNetY-160, the teacher of DeiT.
            ``teacher(inputs, mode='tensor')`` must return logits. None: the model can only be
            tested.
        kwargs: arguments of ImageClassifier; the backbone must return two tokens
            (``distilled=True``), and the head must be a :class:`DistillationHead`.

    Raises:
        ValueError: the head is another one, or the teacher has no weights.
    """

    def __init__(self, teacher: nn.Module | ConfigType | None = None, **kwargs: object) -> None:
        super().__init__(**kwargs)
        if not isinstance(self.head, DistillationHead):
            raise ValueError(f'head is a {type(self.head).__name__}; '
                             f"type='mmposenc.DistillationHead' is required")
        self._ready = isinstance(teacher, nn.Module)
        if isinstance(teacher, dict) and not is_pretrained(teacher.get('init_cfg')):
            raise ValueError("teacher has no init_cfg: with random weights it teaches nothing; "
                             "add init_cfg=dict(type='Pretrained', checkpoint=...)")
        # Stored in a list, so that it is no submodule: state_dict and parameters are those of the
        # student.
        self._teacher: list[nn.Module] = []
        if teacher is not None:
            built = MODELS.build(teacher) if isinstance(teacher, dict) else teacher
            self._teacher.append(built.requires_grad_(False).eval())

    def init_weights(self) -> None:
        """Initialise the student and load the teacher.

        Raises:
            ValueError: a weight of the teacher is missing, unexpected or of another shape.
        """
        super().init_weights()
        if not self._ready and self._teacher:
            load_pretrained(self._teacher[0], self._teacher[0].init_cfg['checkpoint'])
            self._ready = True

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> DistilledClassifier:
        """Move the teacher to the device and dtype of the student."""
        for teacher in self._teacher:
            teacher._apply(fn, recurse)
        super()._apply(fn, recurse)
        return self

    def loss(self, inputs: Tensor, data_samples: list[DataSample]) -> dict[str, Tensor]:
        """Losses of a batch, see :class:`DistillationHead`.

        Raises:
            RuntimeError: there is no teacher, or ``init_weights`` was not called.
            ValueError: the teacher has another number of classes than the student.
        """
        if not self._teacher or not self._ready:
            why = 'is not loaded: call init_weights()' if self._teacher else 'is None'
            raise RuntimeError(f'the teacher {why}')
        with torch.no_grad():
            logits = self._teacher[0](checked_one_batch(inputs), mode='tensor')
        if logits.dim() != 2 or logits.shape[1] != self.head.num_classes:
            raise ValueError(
                f'the teacher returns logits of shape {tuple(logits.shape)}; it must have the '
                f"student's classes, shape ({len(inputs)}, {self.head.num_classes})")
        return self.head.distillation_loss(self.extract_feat(inputs), data_samples,
                                           logits.argmax(dim=1))
