"""Segmentors that keep the padding of a batch out of sliding windows too; needs mmseg."""
from ..compat.openmmlab import require
from ..names import lazy_room

require(__name__)
__all__, __getattr__ = lazy_room(__name__)
