"""Pooling of tokens over neighbourhoods of their own size (ContextPool), and what it is compared
with."""
from .adaptive import context_pool, context_pool_error_bound

__all__ = ['context_pool', 'context_pool_error_bound']
