"""Vision transformers that take any position encoding."""
from .checkpoints import load_pretrained
from .complexity import count_macs
from .deit import DeiT
from .pvt import PVT
from .swin import Swin

__all__ = ['DeiT', 'PVT', 'Swin', 'count_macs', 'load_pretrained']
