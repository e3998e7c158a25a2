"""Backbones that take any position encoding."""
from typing import Any

from torch import nn

from ..registry import MODELS
from .checkpoints import load_pretrained
from .complexity import count_macs
from .deit import DeiT
from .pvt import PVT
from .swin import Swin

__all__ = ['CPResNet', 'DeiT', 'PVT', 'Swin', 'count_macs', 'load_pretrained']


@MODELS.register_module(name='CPResNet')
def _build_cp_resnet(**kwargs: Any) -> nn.Module:
    """See :class:`mmposenc.backbones.resnet.CPResNet`: only that file imports mmpretrain."""
    return __getattr__('CPResNet')(**kwargs)  # type: ignore[no-any-return]


def __getattr__(name: str) -> Any:
    if name == 'CPResNet':
        from .resnet import CPResNet
        return CPResNet
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
