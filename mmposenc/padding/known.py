"""Which layers and networks compute cell by cell, or by functions that padding is kept out of."""
from __future__ import annotations

from collections.abc import Container, Iterable

from torch import nn

_TORCH = """
Conv2d ConvTranspose2d BatchNorm2d SyncBatchNorm GroupNorm InstanceNorm2d MaxPool2d AvgPool2d
AdaptiveAvgPool2d Upsample UpsamplingNearest2d UpsamplingBilinear2d PixelShuffle Sequential
ModuleList ModuleDict Identity Dropout Dropout2d ReLU ReLU6 LeakyReLU PReLU ELU GELU SiLU Mish
Sigmoid Hardsigmoid Hardswish Tanh Softplus
"""
#: By module, classes whose ``forward`` was read: it calls other layers, and combines maps of one
#: size cell by cell.
_READ = {
    'mmengine.model.base_module': 'Sequential ModuleList ModuleDict',
    'mmcv.cnn.bricks.wrappers': 'Conv2d ConvTranspose2d MaxPool2d',
    'mmcv.cnn.bricks.conv_module': 'ConvModule',
    'mmcv.cnn.bricks.depthwise_separable_conv_module': 'DepthwiseSeparableConvModule',
    'mmcv.cnn.bricks.activation': 'Clamp GELU',
    'mmcv.cnn.bricks.hswish': 'HSwish',
    'mmcv.cnn.bricks.hsigmoid': 'HSigmoid',
    'mmcv.cnn.bricks.swish': 'Swish',
    'mmcv.cnn.bricks.scale': 'Scale LayerScale',
    'mmcv.cnn.bricks.drop': 'DropPath Dropout',
    'mmcv.ops.deform_conv': 'DeformConv2dPack',
    'mmcv.ops.modulated_deform_conv': 'ModulatedDeformConv2dPack',
    'mmdet.models.layers.res_layer': 'ResLayer SimplifiedBasicBlock',
    'mmdet.models.layers.csp_layer': 'ChannelAttention CSPLayer CSPNeXtBlock DarknetBottleneck',
    'mmdet.models.layers.se_layer': 'ChannelAttention SELayer',
    'mmdet.models.backbones.resnet': 'BasicBlock Bottleneck ResNet',
    'mmdet.models.backbones.resnext': 'Bottleneck',
    'mmdet.models.backbones.darknet': 'Darknet ResBlock',
    'mmdet.models.backbones.csp_darknet': 'CSPDarknet SPPBottleneck',
    'mmdet.models.backbones.cspnext': 'CSPNeXt',
    'mmdet.models.necks.fpn': 'FPN',
    'mmdet.models.necks.pafpn': 'PAFPN',
    'mmdet.models.necks.channel_mapper': 'ChannelMapper',
    'mmdet.models.necks.cspnext_pafpn': 'CSPNeXtPAFPN',
    'mmdet.models.dense_heads.rtmdet_head': 'RTMDetHead RTMDetSepBNHead',
    'mmdet.models.dense_heads.retina_head': 'RetinaHead',
    'mmdet.models.dense_heads.fcos_head': 'FCOSHead',
    'mmdet.models.dense_heads.atss_head': 'ATSSHead',
    'mmdet.models.dense_heads.anchor_free_head': 'AnchorFreeHead',
    'mmdet.models.dense_heads.rpn_head': 'RPNHead',
    'mmseg.models.backbones.resnet': 'BasicBlock Bottleneck ResNet',
    'mmseg.models.utils.res_layer': 'ResLayer',
    'mmseg.models.utils.wrappers': 'Upsample',
    'mmseg.models.necks.fpn': 'FPN',
    'mmseg.models.necks.featurepyramid': 'Feature2Pyramid',
    'mmseg.models.decode_heads.fcn_head': 'FCNHead',
    'mmseg.models.decode_heads.psp_head': 'PPM PSPHead',
    'mmseg.models.decode_heads.uper_head': 'UPerHead',
    'mmseg.models.decode_heads.fpn_head': 'FPNHead',
    'mmseg.models.decode_heads.aspp_head': 'ASPPHead ASPPModule',
    'mmseg.models.decode_heads.sep_aspp_head': 'DepthwiseSeparableASPPHead',
    'mmposenc.backbones.layers': 'LayerNorm2d',
    'mmposenc.necks.concat_pyramid': 'ConcatPyramid',
    'mmposenc.necks.simple_feature_pyramid': 'SimpleFeaturePyramid',
    'mmposenc.padding.layers': 'DeformableConv SyncBatchNorm',
}
KNOWN = {f'{cls.__module__}.{cls.__qualname__}' for name in _TORCH.split()
         for cls in [getattr(nn, name)]} | {
    f'{module}.{name}' for module, names in _READ.items() for name in names.split()}

#: Classes whose functions have forms for a tensor of sizes (:mod:`.masked`) too.
COMPILED = {name for name in KNOWN if name.rpartition('.')[2] in """
Conv2d BatchNorm2d MaxPool2d Sequential ModuleList ModuleDict Identity Dropout Dropout2d ReLU ReLU6
LeakyReLU PReLU ELU GELU SiLU Mish Sigmoid Hardsigmoid Hardswish Tanh Softplus ConvModule Clamp
HSwish HSigmoid Swish Scale LayerScale DepthwiseSeparableConvModule
""".split()} | {f'mmdet.models.{name}' for name in """
layers.res_layer.ResLayer layers.res_layer.SimplifiedBasicBlock backbones.resnet.BasicBlock
backbones.resnet.Bottleneck backbones.resnet.ResNet backbones.resnext.Bottleneck necks.fpn.FPN
dense_heads.retina_head.RetinaHead
""".split()}


def unknown_layers(network: nn.Module, ignored: Iterable[nn.Module] = (),
                   known: Container[str] = KNOWN) -> list[str]:
    """Layers of a network that may read padding, as 'name (class)'.

    A class is known by its ``forward``: one that inherits it from a known class is known too.

    Args:
        network: a backbone, neck or head.
        ignored: modules that are not looked into.
        known: names of the classes that are known.
    """
    skipped = {id(part) for module in ignored for part in module.modules()}
    found = []
    for name, module in network.named_modules():
        if id(module) in skipped:
            continue
        if not _known(type(module), known):
            found.append(f'{name or "itself"} ({type(module).__module__}.{type(module).__name__})')
    return found


def _known(cls: type[nn.Module], known: Container[str]) -> bool:
    return any(f'{base.__module__}.{base.__qualname__}' in known and base.forward is cls.forward
               for base in cls.__mro__ if issubclass(base, nn.Module))
