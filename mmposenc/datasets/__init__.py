"""Data sets: preparing and checking them on disk, and what OpenMMLab needs to read them.

:class:`CocoDataset` and :class:`LoadImageFromFile` are imported on first use, so that preparing
data needs no OpenMMLab.
"""
from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ['CocoDataset', 'LoadImageFromFile']
_MODULES = {'CocoDataset': 'coco', 'LoadImageFromFile': 'loading'}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f'{__name__}.{_MODULES[name]}'), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
