"""DETR's encoder with position encodings, on torch; the detectors need mmdet."""
from ..class_index import lazy_exports
from .boxes import BoxRPB, PositionRelation
from .encoders import DetrEncoder
from .hybrid import HybridEncoder
from .layers import DetrEncoderLayer
from .projector import MultiScaleProjector

_LAZY, __getattr__ = lazy_exports(__name__, 'openmmlab.mmdet.detr')
__all__ = ['BoxRPB', 'DetrEncoder', 'DetrEncoderLayer', 'HybridEncoder', 'MultiScaleProjector',
           'PositionRelation', *_LAZY]
