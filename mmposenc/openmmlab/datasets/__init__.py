"""Data sets and transforms that say what is wrong with their files.

Checking files needs no OpenMMLab; the classes, which are imported on first use, do.
"""
from mmposenc.names import lazy_classes

__all__, __getattr__ = lazy_classes(__name__, 'openmmlab.datasets')
