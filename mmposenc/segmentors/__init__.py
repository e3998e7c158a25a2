"""Segmentors that keep the padding of a batch out of sliding windows too.

Registered as functions, so that naming this room's types imports mmseg, and importing the room
does not.
"""
from typing import Any

from torch import nn

from ..registry import MODELS


@MODELS.register_module()
def EncoderDecoder(**kwargs: Any) -> nn.Module:  # noqa: N802 (a class to its users)
    """See :class:`mmposenc.segmentors.encoder_decoder.EncoderDecoder`."""
    from .encoder_decoder import EncoderDecoder as Segmentor
    return Segmentor(**kwargs)


__all__ = ['EncoderDecoder']
