"""Weighted means of tokens over neighbourhoods of different sizes (ContextPool), and the poolings
that it is compared with."""
from .adaptive import context_pool

__all__ = ['context_pool']
