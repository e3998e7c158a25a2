"""Attention modules with relative encodings."""
from .attend import attend
from .building import build_relative_encoding
from .conv_projection import ConvProjectionAttention
from .multihead import MultiheadAttention
from .spatial_reduction import SpatialReductionAttention
from .window import PlainWindowAttention, ShiftWindowAttention, WindowAttention

__all__ = [
    'ConvProjectionAttention',
    'MultiheadAttention',
    'PlainWindowAttention',
    'ShiftWindowAttention',
    'SpatialReductionAttention',
    'WindowAttention',
    'attend',
    'build_relative_encoding',
]
