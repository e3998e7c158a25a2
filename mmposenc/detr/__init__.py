"""DETR's encoder with position encodings, on torch; the detectors need mmdet."""
from ..class_index import lazy_classes
from .boxes import BoxRPB, PositionRelation
from .encoders import DetrEncoder
from .hybrid import HybridEncoder
from .layers import DetrEncoderLayer

_LAZY, __getattr__ = lazy_classes(__name__, 'openmmlab.mmdet.detr')
__all__ = ['BoxRPB', 'DetrEncoder', 'DetrEncoderLayer', 'HybridEncoder', 'PositionRelation', *_LAZY]
