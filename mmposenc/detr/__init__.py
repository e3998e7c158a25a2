"""DETR and Deformable DETR with position encodings in their encoders.

Registered as functions, so that naming this room's types imports mmdet, and importing the room
does not.
"""
from typing import Any

from torch import nn

from ..registry import MODELS


@MODELS.register_module()
def DETR(**kwargs: Any) -> nn.Module:  # noqa: N802 (a class to its users)
    """See :class:`mmposenc.detr.detectors.DETR`."""
    from .detectors import DETR as Detector
    return Detector(**kwargs)


@MODELS.register_module()
def DeformableDETR(**kwargs: Any) -> nn.Module:  # noqa: N802
    """See :class:`mmposenc.detr.detectors.DeformableDETR`."""
    from .detectors import DeformableDETR as Detector
    return Detector(**kwargs)


@MODELS.register_module()
def ChannelMapper(**kwargs: Any) -> nn.Module:  # noqa: N802
    """See :class:`mmposenc.detr.neck.ChannelMapper`."""
    from .neck import ChannelMapper as Neck
    return Neck(**kwargs)


__all__ = ['ChannelMapper', 'DETR', 'DeformableDETR']
