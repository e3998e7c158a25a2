"""Necks that make a pyramid for backbones of one stride."""
from ..compat.openmmlab import require
from ..names import lazy_room

require(__name__)
__all__, __getattr__ = lazy_room(__name__)
