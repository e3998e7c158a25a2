"""Backbones that take any position encoding."""
from ..class_index import lazy_classes
from .checkpoints import load_pretrained
from .complexity import count_macs
from .layers import LayerNorm2d
from .pvt import PVT, MixVisionTransformer, PVTv2
from .swin import Swin
from .vit import DeiT, ViT

_, __getattr__ = lazy_classes(__name__, 'openmmlab.mmpretrain.resnet')  # needs mmpretrain
__all__ = ['CPResNet', 'DeiT', 'LayerNorm2d', 'MixVisionTransformer', 'PVT', 'PVTv2', 'Swin', 'ViT',
           'count_macs', 'load_pretrained']
