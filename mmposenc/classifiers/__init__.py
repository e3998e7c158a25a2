"""Classifiers beside mmpretrain's: distillation through a token; needs mmpretrain."""
from ..compat.openmmlab import require
from ..names import lazy_room

require(__name__)
__all__, __getattr__ = lazy_room(__name__)
