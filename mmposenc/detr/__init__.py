"""DETR and Deformable DETR with position encodings in their encoders; needs mmdet."""
from ..compat.openmmlab import require
from ..names import lazy_room

require(__name__)
__all__, __getattr__ = lazy_room(__name__)
