"""Data sets and transforms that check their files and name what is wrong.

The checks need no OpenMMLab. The classes need it; they are imported on first use.
"""
from mmposenc.class_index import lazy_exports

__all__, __getattr__ = lazy_exports(__name__, 'openmmlab.datasets')
