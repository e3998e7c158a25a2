"""The ResNet of RT-DETR."""
from __future__ import annotations

from mmcv.cnn import build_conv_layer, build_norm_layer
from mmdet.models.backbones import ResNetV1d
from torch import nn

from mmposenc.backbones.checkpoints import load_of_init_cfg
from mmposenc.backbones.optional_mmengine import is_pretrained


class ResNetVD(ResNetV1d):
    """ResNet-vd as in RT-DETR's releases (``PResNet``): mmdet's ResNetV1d, whose parameters it has,
    but in depths 18 and 34 the first block of the first stage has a 1 x 1 convolution around it,
    too.

    Args:
        kwargs: arguments of mmdet's ResNet.
    """

    def make_res_layer(self, **kwargs: object) -> nn.Sequential:
        """A stage, whose first block always has a convolution around it."""
        stage = super().make_res_layer(**kwargs)
        block = stage[0]
        if block.downsample is None:
            channels = block.conv1.in_channels
            block.downsample = nn.Sequential(  # Numbered as behind mmdet's average pooling.
                nn.Identity(),
                build_conv_layer(kwargs['conv_cfg'], channels, channels, 1, bias=False),
                build_norm_layer(kwargs['norm_cfg'], channels)[1])
        return stage

    def init_weights(self) -> None:
        """Initialise as mmdet does; the file of an ``init_cfg`` may be the release's, of this
        backbone or of a detector with it."""
        if not is_pretrained(self.init_cfg):
            super().init_weights()
            return
        load_of_init_cfg(self, self.init_cfg)


__all__ = ['ResNetVD']
