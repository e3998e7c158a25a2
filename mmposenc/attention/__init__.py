"""Attention modules that take encodings."""
from .core import attend
from .multihead import MultiheadAttention, build_relative_encoding
from .spatial_reduction import SpatialReductionAttention
from .window import ShiftWindowAttention, WindowAttention

__all__ = [
    'MultiheadAttention',
    'ShiftWindowAttention',
    'SpatialReductionAttention',
    'WindowAttention',
    'attend',
    'build_relative_encoding',
]
