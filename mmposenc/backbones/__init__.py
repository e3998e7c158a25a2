"""Backbones that take any position encoding."""
from ..names import lazy_room
from .checkpoints import load_pretrained
from .complexity import count_macs
from .layers import LayerNorm2d
from .pvt import PVT
from .swin import Swin
from .vit import DeiT, ViT

_, __getattr__ = lazy_room(__name__)  # CPResNet: only that one needs mmpretrain
__all__ = ['CPResNet', 'DeiT', 'LayerNorm2d', 'PVT', 'Swin', 'ViT', 'count_macs', 'load_pretrained']
