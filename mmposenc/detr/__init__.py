"""The DETR family of mmdet with position encodings in its encoders; needs mmdet."""
from ..compat.openmmlab import require
from ..names import lazy_room

require(__name__)
__all__, __getattr__ = lazy_room(__name__)
