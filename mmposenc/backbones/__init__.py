"""Backbones that take any position encoding."""
from ..class_index import lazy_exports
from .checkpoints import load_pretrained
from .complexity import count_macs
from .eomt import EoMT
from .layers import LayerNorm2d
from .pvt import PVT
from .swin import Swin
from .vit import DeiT, ViT

# CPResNet needs mmpretrain, so it is imported only when it is asked for.
_, __getattr__ = lazy_exports(__name__, 'openmmlab.mmpretrain.resnet')
__all__ = ['CPResNet', 'DeiT', 'EoMT', 'LayerNorm2d', 'PVT', 'Swin', 'ViT', 'count_macs',
           'load_pretrained']
