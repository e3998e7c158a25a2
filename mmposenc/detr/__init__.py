"""The DETR family with position encodings in its encoders: the encoder of DETR on torch alone, all
else on mmdet."""
from ..names import lazy_room
from .encoders import DetrEncoder
from .layers import DetrEncoderLayer

_LAZY, __getattr__ = lazy_room(__name__)
__all__ = ['DetrEncoder', 'DetrEncoderLayer', *_LAZY]
