"""Where a config takes encodings: a backbone, or the encoder of a DETR."""
from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from mmengine.config import Config
from mmengine.registry import MODELS as ROOT
from mmengine.registry import init_default_scope

from mmposenc.engine.config.nodes import bare_type, type_name
from mmposenc.engine.config.options import accepted_arguments
from mmposenc.engine.config.testing import scope_of
from mmposenc.names import CLASSES

#: mmdet's classes whose encoder takes encodings here; those of mmdet itself are replaced by ours.
DETECTORS = tuple(name for name, module in CLASSES['model'].items()
                  if module in ('openmmlab.detr.detectors', 'openmmlab.detr.ddq'))
PIXEL_DECODERS = tuple(name for name, module in CLASSES['model'].items()
                       if module == 'openmmlab.detr.pixel_decoders')


class Place(NamedTuple):
    """A part of a model that takes encodings: 'backbone', 'pool' (a ResNet whose pooling they
    replace) or 'encoder'; its keys below ``model``; and its type, for messages."""

    kind: str
    path: tuple[str, ...]
    type: str


def find_place(cfg: Config) -> Place:
    """What of a config's model takes encodings: its backbone, else the encoder of a DETR.

    Raises:
        ValueError: nothing does.
    """
    scope_of(cfg)
    backbone = cfg.model.get('backbone') or {}
    takes = arguments_of(cfg, backbone.get('type'))
    if {'pos_encoding', 'rel_pos_encoding'} <= takes:
        return Place('backbone', ('backbone',), type_name(backbone))
    if 'context_pool' in takes:
        return Place('pool', ('backbone',), type_name(backbone))
    for path, known in (((), DETECTORS), (('panoptic_head', 'pixel_decoder'), PIXEL_DECODERS),
                        (('decode_head', 'pixel_decoder'), PIXEL_DECODERS)):
        node: Any = cfg.model
        for key in path:
            node = node.get(key) if isinstance(node, dict) else None
        if isinstance(node, dict) and bare_type(node) in known:
            return Place('encoder', (*path, 'encoder'), type_name(node))
    raise ValueError(
        f'nothing in the model of this config takes position encodings: its backbone is '
        f'{type_name(backbone) or None!r}, its type {type_name(cfg.model)!r}. Needed: a backbone '
        f'of mmposenc (PVT, ViT, DeiT, Swin, CPResNet), or one of {", ".join(DETECTORS)}, or a '
        f'pixel decoder of MaskFormer or Mask2Former')


def build_backbone(cfg: Config, device: str = 'meta') -> Any:
    """The backbone of a config's model for inference; on 'meta' without numbers, to be asked for
    its sizes."""
    init_default_scope(scope_of(cfg))
    with torch.device(device):
        return ROOT.build(copy.deepcopy(cfg.model.backbone)).eval()


def class_of(cfg: Config, kind: Any) -> Any:
    """The class of a type in the config's model, or None."""
    if isinstance(kind, str):
        with ROOT.switch_scope_and_registry(scope_of(cfg)) as local:
            return local.get(kind)
    return kind


def arguments_of(cfg: Config, kind: Any) -> set[str]:
    """The arguments of a class of the config's model."""
    found = class_of(cfg, kind)
    return accepted_arguments(found) or set() if found is not None else set()
