"""Data sets and transforms that say what is wrong with their files.

Checking files needs no OpenMMLab; the classes, which are imported on first use, do.
"""
from ..names import lazy_room

__all__, __getattr__ = lazy_room(__name__)
