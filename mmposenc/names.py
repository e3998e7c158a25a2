"""Where each class that a config may name lives; none is imported before it is asked for.

The registries (registry.py) and the rooms read this one table. Classes of mmdet, mmseg and
mmpretrain are behind it: a user of one of these libraries neither waits for the others nor needs
them.
"""
from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

#: By name of the registry, the module of each class of mmposenc. Encodings are registered besides.
CLASSES: dict[str, dict[str, str]] = {
    'model': {
        'CPResNet': 'backbones.resnet',
        'DeiT': 'backbones.vit',
        'LayerNorm2d': 'backbones.layers',
        'PVT': 'backbones.pvt',
        'Swin': 'backbones.swin',
        'ViT': 'backbones.vit',
        'DistillationHead': 'classifiers.distilled',
        'DistilledClassifier': 'classifiers.distilled',
        'TorchvisionClassifier': 'classifiers.teacher',
        'DetDataPreprocessor': 'data_preprocessors.detection',
        'SegDataPreProcessor': 'data_preprocessors.segmentation',
        'ChannelMapper': 'detr.neck',
        'ConditionalDETR': 'detr.detectors',
        'DABDETR': 'detr.detectors',
        'DDQDETR': 'detr.ddq',
        'DETR': 'detr.detectors',
        'DINO': 'detr.detectors',
        'DeformableDETR': 'detr.detectors',
        'MSDeformAttnPixelDecoder': 'detr.pixel_decoders',
        'TransformerEncoderPixelDecoder': 'detr.pixel_decoders',
        'RetinaHead': 'heads.retina',
        'ConcatPyramid': 'necks.concat_pyramid',
        'SimpleFeaturePyramid': 'necks.simple_feature_pyramid',
        'EncoderDecoder': 'segmentors.encoder_decoder',
    },
    'dataset': {
        'ADE20KDataset': 'datasets.segmentation',
        'CocoDataset': 'datasets.coco',
        'FewViews': 'datasets.views',
        'SegDataset': 'datasets.segmentation',
    },
    'transform': {
        'LoadImageFromFile': 'datasets.loading',
        'LoadSegAnnotations': 'datasets.seg_loading',
    },
    'hook': {
        'AverageLossHook': 'engine.processes',
        'CheckpointHook': 'engine.checkpoint_hook',
        'ClsVisualizationHook': 'engine.cls_visualization',
        'CompileHook': 'engine.compiling',
        'EpochSeedHook': 'engine.seeding',
        'FeatureCacheHook': 'engine.feature_cache',
        'GradientCheckHook': 'engine.gradients',
        'KeepPaddingOut': 'engine.padding_out',
        'NotFiniteHook': 'engine.finite',
        'ProgressBarHook': 'engine.progress',
        'SegVisualizationHook': 'engine.seg_visualization',
        'TrackerHook': 'engine.tracker_hook',
    },
    'metric': {'ClassIoUMetric': 'engine.class_iou', 'DumpSegResults': 'engine.dump'},
    'optim_wrapper': {'AmpOptimWrapper': 'engine.amp'},
    'optimizer wrapper constructor': {
        'LayerDecayOptimWrapperConstructor': 'engine.layer_decay',
    },
    'runner': {
        'FlexibleRunner': 'engine.sharding',
        'Runner': 'engine.runner',
    },
    'vis_backend': {
        'MLflowVisBackend': 'engine.tracker_backends',
        'TensorboardVisBackend': 'engine.tracker_backends',
        'WandbVisBackend': 'engine.tracker_backends',
    },
    'strategy': {'FSDP2Strategy': 'engine.sharding'},
}


def load_class(module: str, name: str) -> Any:
    """A class of a module of mmposenc, 'detr.detectors'.

    Raises:
        ImportError: with what to install, where the library that the module needs is absent.
    """
    from .compat.openmmlab import require
    full_name = f'{__package__}.{module}'
    require(full_name)
    return getattr(import_module(full_name), name)


def lazy_room(package: str) -> tuple[list[str], Callable[[str], Any]]:
    """``__all__`` and ``__getattr__`` of a room: its classes in the table."""
    room = package.rpartition('.')[2]
    modules = {name: module for table in CLASSES.values() for name, module in table.items()
               if module.split('.')[0] == room}

    def __getattr__(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f'module {package!r} has no attribute {name!r}')
        return load_class(modules[name], name)

    return sorted(modules), __getattr__
