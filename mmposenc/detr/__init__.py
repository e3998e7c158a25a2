"""The DETR family with position encodings in its encoders: the encoder of DETR on torch alone, all
else on mmdet."""
from ..names import lazy_classes
from .encoders import DetrEncoder
from .layers import DetrEncoderLayer

_LAZY, __getattr__ = lazy_classes(__name__, 'openmmlab.detr')
__all__ = ['DetrEncoder', 'DetrEncoderLayer', *_LAZY]
