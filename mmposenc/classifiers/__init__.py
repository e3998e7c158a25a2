"""Classifiers beside mmpretrain's: distillation through a token.

Registered as functions, so that naming this room's types imports mmpretrain, and importing the
room does not.
"""
from typing import Any

from torch import nn

from ..registry import MODELS
from .teacher import TorchvisionClassifier


@MODELS.register_module()
def DistilledClassifier(**kwargs: Any) -> nn.Module:  # noqa: N802 (a class to its users)
    """See :class:`mmposenc.classifiers.distilled.DistilledClassifier`."""
    from .distilled import DistilledClassifier as Classifier
    return Classifier(**kwargs)


@MODELS.register_module()
def DistillationHead(**kwargs: Any) -> nn.Module:  # noqa: N802
    """See :class:`mmposenc.classifiers.distilled.DistillationHead`."""
    from .distilled import DistillationHead as Head
    return Head(**kwargs)


__all__ = ['DistillationHead', 'DistilledClassifier', 'TorchvisionClassifier']
