"""Heads of detectors whose losses do not depend on how images are spread over processes.

Registered as functions, so that naming this room's types imports mmdet, and importing the room
does not.
"""
from typing import Any

from torch import nn

from ..registry import MODELS


@MODELS.register_module()
def RetinaHead(**kwargs: Any) -> nn.Module:  # noqa: N802 (a class to its users)
    """See :class:`mmposenc.heads.retina.RetinaHead`."""
    from .retina import RetinaHead as Head
    return Head(**kwargs)


__all__ = ['RetinaHead']
