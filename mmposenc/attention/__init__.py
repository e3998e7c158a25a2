"""Attention modules that take encodings."""
from .core import attend
from .multihead import MultiheadAttention, build_relative_encoding

__all__ = ['MultiheadAttention', 'attend', 'build_relative_encoding']
