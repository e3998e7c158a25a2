"""Data preprocessors that tell the backbone how far each image of a padded batch reaches.

Registered as functions, so that naming this room's types imports mmdet or mmseg, and importing
the room does not.
"""
from typing import Any

from torch import nn

from ..registry import MODELS


@MODELS.register_module()
def DetDataPreprocessor(**kwargs: Any) -> nn.Module:  # noqa: N802 (a class to its users)
    """mmdet's DetDataPreprocessor (same arguments), whose batches carry their images' sizes."""
    from .detection import DetDataPreprocessor as Preprocessor
    return Preprocessor(**kwargs)


@MODELS.register_module()
def SegDataPreProcessor(**kwargs: Any) -> nn.Module:  # noqa: N802
    """mmseg's SegDataPreProcessor (same arguments), whose batches carry their images' sizes."""
    from .segmentation import SegDataPreProcessor as Preprocessor
    return Preprocessor(**kwargs)


__all__ = ['DetDataPreprocessor', 'SegDataPreProcessor']
