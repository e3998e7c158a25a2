"""Padding kept out of networks that are not ours: a batch changes nothing.

:func:`keep_padding_out` changes a model of mmdet or mmseg; in a config,
``custom_hooks=[dict(type='mmposenc.KeepPaddingOut')]`` does so for a run.
"""
from .extents import KeptOut
from .models import keep_padding_out

__all__ = ['KeptOut', 'keep_padding_out']
