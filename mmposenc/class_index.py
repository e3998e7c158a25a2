"""The module of each class that a config may name; a class is imported when it is first used.

The registries (registry.py) and the packages read this one table. Thus a user of mmdet does not
need mmseg or mmpretrain, and does not wait for their import.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

#: For each registry, the classes of each module. registry.py adds the encodings.
_CLASSES_OF: dict[str, dict[str, tuple[str, ...]]] = {
    'model': {
        'openmmlab.mmpretrain.resnet': ('CPResNet',),
        'openmmlab.mmpretrain.convnext': ('ConvNeXt',),
        'backbones.vit': ('DeiT', 'ViT'),
        'backbones.eomt': ('EoMT',),
        'backbones.layers': ('LayerNorm2d',),
        'openmmlab.upstream.pvt': ('MixVisionTransformer', 'PCPVT', 'PyramidVisionTransformer',
                                   'PyramidVisionTransformerV2', 'SVT'),
        'backbones.pvt': ('PVT',),
        'backbones.swin': ('Swin',),
        'openmmlab.upstream.vit': ('BEiT', 'BEiTViT', 'DistilledVisionTransformer', 'MAE', 'MAEViT',
                                   'ViTEVA02', 'ViTSAM', 'VisionTransformer'),
        'openmmlab.upstream.swin': ('SwinTransformer', 'SwinTransformerV2'),
        'openmmlab.mmpretrain.classification': ('ClsDataPreprocessor',),
        'openmmlab.mmpretrain.distillation': ('DistillationHead', 'DistilledClassifier'),
        'openmmlab.timm_backbone': ('TimmBackbone',),
        'openmmlab.mmdet.eomt': ('EoMTHead',),
        'openmmlab.mmseg.eomt': ('EoMTDecodeHead',),
        'openmmlab.mmdet.detection': ('DetDataPreprocessor',),
        'openmmlab.mmdet.retina_head': ('RetinaHead',),
        'openmmlab.mmseg.segmentation': ('SegDataPreProcessor', 'EncoderDecoder'),
        'openmmlab.mmseg.foreground': ('SegTTAModel',),
        'detr.boxes': ('BoxRPB', 'PositionRelation'),
        'openmmlab.mmdet.detr.neck': ('ChannelMapper',),
        'detr.hybrid': ('HybridEncoder',),
        'detr.projector': ('MultiScaleProjector',),
        'openmmlab.mmdet.detr.detectors': ('ConditionalDETR', 'DABDETR', 'DETR', 'DINO',
                                           'DeformableDETR'),
        'openmmlab.mmdet.detr.ddq': ('DDQDETR',),
        'openmmlab.mmdet.detr.rtdetr': ('RTDETR',),
        'openmmlab.mmdet.detr.dfine': ('DFINE',),
        'openmmlab.mmdet.detr.dfine_head': ('DFINEHead',),
        'openmmlab.mmdet.detr.losses': ('IoUAwareBCELoss', 'MatchabilityAwareLoss',
                                        'MatchedVarifocalLoss'),
        'openmmlab.mmdet.detr.rfdetr': ('RFDETR', 'RFDETRHead'),
        'openmmlab.mmdet.hgnet_v2': ('HGNetV2',),
        'openmmlab.mmdet.resnet_vd': ('ResNetVD',),
        'detr.layers': ('DetrEncoderLayer',),
        'openmmlab.mmdet.detr.grounding': ('GroundingDINO',),
        'openmmlab.mmdet.detr.decoders': ('DeformableEncoderLayer',),
        'openmmlab.mmdet.detr.pixel_decoders': ('MSDeformAttnPixelDecoder',
                                                'TransformerEncoderPixelDecoder'),
        'openmmlab.necks': ('ConcatPyramid', 'STA', 'SimpleFeaturePyramid'),
    },
    'dataset': {
        'openmmlab.mmseg.datasets': ('ADE20KDataset', 'SegDataset'),
        'openmmlab.mmdet.coco_dataset': ('CocoDataset',),
        'openmmlab.mmpretrain.datasets': ('CustomDataset',),
    },
    'transform': {
        'openmmlab.datasets.loading': ('LoadImageFromFile',),
        'openmmlab.mmseg.datasets': ('LoadSegAnnotations',),
    },
    'hook': {
        'engine.training.checkpoints': ('CheckpointHook',),
        'engine.training.compiling': ('CompileHook',),
        'engine.training.padding_out': ('KeepPaddingOut',),
        'engine.apps.hooks': ('LabelMapsHook', 'VisualizationHook'),
        'engine.training.mask_annealing': ('MaskAnnealingHook',),
        'engine.training.finite': ('NotFiniteHook',),
    },
    'metric': {
        'openmmlab.dumping': ('DumpResults', 'DumpSegResults'),
        'openmmlab.mmdet.detection': ('DumpDetResults',),
        'openmmlab.mmdet.coco_metric': ('CocoMetric',),
    },
    'optim_wrapper': {
        'engine.training.amp': ('AmpOptimWrapper',),
    },
    'optimizer wrapper constructor': {
        'engine.training.layer_decay': ('LayerDecayOptimWrapperConstructor',
                                        'OptimWrapperConstructor'),
    },
    'runner': {
        'engine.training.runner': ('Runner',),
    },
}
#: For each registry, the module of each class.
CLASSES: dict[str, dict[str, str]] = {
    registry: {name: module for module, names in modules.items() for name in names}
    for registry, modules in _CLASSES_OF.items()}


def load_own_class(module: str, name: str) -> Any:
    """Import a class from a module of mmposenc, 'openmmlab.mmdet.detr.detectors'.

    Raises:
        ImportError: the library that the module needs is not installed; it says what to install.
    """
    from .dependencies import DISTRIBUTIONS, is_importable, missing, require
    full_name = f'{__package__}.{module}'
    require(full_name, libraries=())
    try:
        return getattr(import_module(full_name), name)
    except ModuleNotFoundError as error:
        library = (error.name or '').partition('.')[0]
        needed = ['mmengine', 'mmcv', library] if library in DISTRIBUTIONS else []
        absent = [each for each in dict.fromkeys(needed) if not is_importable(each)]
        if not absent:
            raise
        raise missing(full_name, absent) from error


def lazy_exports(package: str, *modules: str) -> tuple[list[str], Callable[[str], Any]]:
    """``__all__`` and ``__getattr__`` of a package that exports the classes of some modules.

    Args:
        package: full name of the package.
        modules: prefixes of module names, 'openmmlab.mmdet.detr'.
    """
    classes = {name: module for table in CLASSES.values() for name, module in table.items()
               if module.startswith(modules)}
    return sorted(classes), lazy(package, classes)


def lazy(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """``__getattr__`` of a package whose names are imported on first use."""
    def __getattr__(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f'module {package!r} has no attribute {name!r}')
        return load_own_class(modules[name], name)

    return __getattr__


def class_of_name(name: str) -> Any:
    """The class that a config calls ``mmposenc.NAME``.

    Raises:
        AttributeError: no class has this name.
    """
    for table in CLASSES.values():
        if name in table:
            return load_own_class(table[name], name)
    encodings = import_module(f'{__package__}.encodings')
    if name in encodings.ENCODINGS:
        return encodings.ENCODINGS[name]
    raise AttributeError(f'module {__package__!r} has no attribute {name!r}')
