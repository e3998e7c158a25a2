"""Vision transformers that take any position encoding."""
from .checkpoints import load_pretrained
from .pvt import PVT

__all__ = ['PVT', 'load_pretrained']
