"""The DETR family with position encodings in its encoders: the encoder of DETR on torch alone, all
else on mmdet."""
from ..names import lazy_classes
from .boxes import BoxRPB, PositionRelation
from .encoders import DetrEncoder
from .hybrid import HybridEncoder
from .layers import DetrEncoderLayer

_LAZY, __getattr__ = lazy_classes(__name__, 'openmmlab.detr')
__all__ = ['BoxRPB', 'DetrEncoder', 'DetrEncoderLayer', 'HybridEncoder', 'PositionRelation', *_LAZY]
