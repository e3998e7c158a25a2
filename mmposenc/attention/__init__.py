"""Attention modules that take encodings."""
from .core import attend
from .multihead import MultiheadAttention, build_relative_encoding
from .spatial_reduction import SpatialReductionAttention

__all__ = ['MultiheadAttention', 'SpatialReductionAttention', 'attend', 'build_relative_encoding']
