"""The module of each class that a config may name; a class is imported when it is first used.

The registries (registry.py) and the packages read this one table. Thus a user of mmdet does not
need mmseg or mmpretrain, and does not wait for their import.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

#: For each registry, the module of each class. registry.py adds the encodings.
CLASSES: dict[str, dict[str, str]] = {
    'model': {
        'CPResNet': 'openmmlab.mmpretrain.resnet',
        'DeiT': 'backbones.vit',
        'EoMT': 'backbones.eomt',
        'LayerNorm2d': 'backbones.layers',
        'MixVisionTransformer': 'openmmlab.upstream.pvt',
        'PCPVT': 'openmmlab.upstream.pvt',
        'PVT': 'backbones.pvt',
        'PyramidVisionTransformer': 'openmmlab.upstream.pvt',
        'PyramidVisionTransformerV2': 'openmmlab.upstream.pvt',
        'SVT': 'openmmlab.upstream.pvt',
        'Swin': 'backbones.swin',
        'BEiT': 'openmmlab.upstream.vit',
        'BEiTViT': 'openmmlab.upstream.vit',
        'DistilledVisionTransformer': 'openmmlab.upstream.vit',
        'MAE': 'openmmlab.upstream.vit',
        'MAEViT': 'openmmlab.upstream.vit',
        'SwinTransformer': 'openmmlab.upstream.swin',
        'SwinTransformerV2': 'openmmlab.upstream.swin',
        'ViT': 'backbones.vit',
        'ViTEVA02': 'openmmlab.upstream.vit',
        'ViTSAM': 'openmmlab.upstream.vit',
        'VisionTransformer': 'openmmlab.upstream.vit',
        'ClsDataPreprocessor': 'openmmlab.mmpretrain.classification',
        'DistillationHead': 'openmmlab.mmpretrain.classification',
        'DistilledClassifier': 'openmmlab.mmpretrain.classification',
        'TorchvisionClassifier': 'openmmlab.mmpretrain.classification',
        'TimmBackbone': 'openmmlab.timm_backbone',
        'DetDataPreprocessor': 'openmmlab.mmdet.detection',
        'SegDataPreProcessor': 'openmmlab.mmseg.segmentation',
        'BoxRPB': 'detr.boxes',
        'ChannelMapper': 'openmmlab.mmdet.detr.neck',
        'HybridEncoder': 'detr.hybrid',
        'ConditionalDETR': 'openmmlab.mmdet.detr.detectors',
        'DABDETR': 'openmmlab.mmdet.detr.detectors',
        'DDQDETR': 'openmmlab.mmdet.detr.ddq',
        'DETR': 'openmmlab.mmdet.detr.detectors',
        'DetrEncoderLayer': 'detr.layers',
        'DINO': 'openmmlab.mmdet.detr.detectors',
        'DeformableDETR': 'openmmlab.mmdet.detr.detectors',
        'GroundingDINO': 'openmmlab.mmdet.detr.grounding',
        'DeformableEncoderLayer': 'openmmlab.mmdet.detr.decoders',
        'MSDeformAttnPixelDecoder': 'openmmlab.mmdet.detr.pixel_decoders',
        'TransformerEncoderPixelDecoder': 'openmmlab.mmdet.detr.pixel_decoders',
        'PositionRelation': 'detr.boxes',
        'RetinaHead': 'openmmlab.mmdet.detection',
        'ConcatPyramid': 'openmmlab.necks',
        'SimpleFeaturePyramid': 'openmmlab.necks',
        'EncoderDecoder': 'openmmlab.mmseg.segmentation',
        'SegTTAModel': 'openmmlab.mmseg.segmentation',
    },
    'dataset': {
        'ADE20KDataset': 'openmmlab.mmseg.datasets',
        'CocoDataset': 'openmmlab.mmdet.coco_dataset',
        'FewViews': 'engine.training.seeding',
        'SegDataset': 'openmmlab.mmseg.datasets',
    },
    'transform': {
        'LoadImageFromFile': 'openmmlab.datasets.loading',
        'LoadSegAnnotations': 'openmmlab.mmseg.datasets',
    },
    'hook': {
        'AverageLossHook': 'engine.training.processes',
        'CheckpointHook': 'engine.training.checkpoints',
        'CompileHook': 'engine.training.compiling',
        'FeatureCacheHook': 'engine.training.feature_cache',
        'KeepPaddingOut': 'engine.training.padding_out',
        'LabelMapsHook': 'engine.apps.hooks',
        'NotFiniteHook': 'engine.training.finite',
        'ProgressBarHook': 'engine.console',
        'SeedHook': 'engine.training.seeding',
        'VisualizationHook': 'engine.apps.hooks',
    },
    'metric': {
        'ClassIoUMetric': 'openmmlab.mmseg.segmentation',
        'CocoMetric': 'openmmlab.mmdet.coco_metric',
        'DumpSegResults': 'openmmlab.mmseg.segmentation',
    },
    'optim_wrapper': {'AmpOptimWrapper': 'engine.training.amp'},
    'optimizer wrapper constructor': {
        'LayerDecayOptimWrapperConstructor': 'engine.training.layer_decay',
        'OptimWrapperConstructor': 'engine.training.layer_decay',
    },
    'runner': {
        'FlexibleRunner': 'engine.training.sharding',
        'Runner': 'engine.training.runner',
    },
    'strategy': {'FSDP2Strategy': 'engine.training.sharding'},
}


def load_class(module: str, name: str) -> Any:
    """Import a class from a module of mmposenc, 'openmmlab.mmdet.detr.detectors'.

    Raises:
        ImportError: the library that the module needs is not installed; it says what to install.
    """
    from .dependencies import RELEASES, is_importable, missing, require
    full_name = f'{__package__}.{module}'
    require(full_name, libraries=())
    try:
        return getattr(import_module(full_name), name)
    except ModuleNotFoundError as error:
        library = (error.name or '').partition('.')[0]
        needed = ['mmengine', 'mmcv', library] if library in RELEASES else []
        absent = [each for each in dict.fromkeys(needed) if not is_importable(each)]
        if not absent:
            raise
        raise missing(full_name, absent) from error


def lazy_classes(package: str, *modules: str) -> tuple[list[str], Callable[[str], Any]]:
    """``__all__`` and ``__getattr__`` of a package that exports the classes of some modules.

    Args:
        package: full name of the package.
        modules: prefixes of module names, 'openmmlab.mmdet.detr'.
    """
    found = {name: module for table in CLASSES.values() for name, module in table.items()
             if module.startswith(modules)}
    return sorted(found), lazy(package, found)


def lazy(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """``__getattr__`` of a package whose names are imported on first use."""
    def __getattr__(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f'module {package!r} has no attribute {name!r}')
        return load_class(modules[name], name)

    return __getattr__


def class_of_name(name: str) -> Any:
    """The class that a config calls ``mmposenc.NAME``.

    Raises:
        AttributeError: no class has this name.
    """
    for table in CLASSES.values():
        if name in table:
            return load_class(table[name], name)
    encodings = import_module(f'{__package__}.encodings')
    if name in encodings.ENCODINGS:
        return encodings.ENCODINGS[name]
    raise AttributeError(f'module {__package__!r} has no attribute {name!r}')
