"""Data sets: preparing and checking them on disk, and what OpenMMLab needs to read them.

Its classes are imported on first use, so that preparing data needs no OpenMMLab.
"""
from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ['ADE20KDataset', 'CocoDataset', 'LoadImageFromFile', 'LoadSegAnnotations', 'SegDataset']
_MODULES = {'ADE20KDataset': 'segmentation', 'CocoDataset': 'coco', 'LoadImageFromFile': 'loading',
            'LoadSegAnnotations': 'seg_loading', 'SegDataset': 'segmentation'}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f'{__name__}.{_MODULES[name]}'), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
