"""Keeps padding out of networks of mmdet and mmseg: results do not depend on the batch.

:func:`keep_padding_out` changes a model of mmdet or mmseg; in a config,
``custom_hooks=[dict(type='mmposenc.KeepPaddingOut')]`` does so for a run.
"""
from .extents import KeptOut
from .models import keep_padding_out

__all__ = ['KeptOut', 'keep_padding_out']
