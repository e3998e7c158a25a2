"""Keeps padding out of predictions of mmdet's and mmseg's models: they do not depend on the batch.

:func:`keep_padding_out` changes a model of mmdet or mmseg; in a config,
``custom_hooks=[dict(type='mmposenc.KeepPaddingOut')]`` does so for a run.
"""
from .prediction import keep_padding_out

__all__ = ['keep_padding_out']
