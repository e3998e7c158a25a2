"""Where a config's model takes encodings: in a backbone, or in the encoder of a DETR."""
from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from mmengine.config import Config, ConfigDict
from mmengine.registry import MODELS as ROOT
from mmengine.registry import init_default_scope

from mmposenc.checkpoint.encoding_names import SLOTS
from mmposenc.class_index import CLASSES
from mmposenc.engine.config.arguments import model_class
from mmposenc.engine.config.nodes import bare_type, type_name
from mmposenc.engine.config.testing import scope_of
from mmposenc.signatures import accepted_arguments

#: mmdet's classes whose encoder takes encodings here; those of mmdet itself are replaced by ours.
DETECTORS = tuple(name for name, module in CLASSES['model'].items()
                  if module in ('openmmlab.mmdet.detr.detectors', 'openmmlab.mmdet.detr.ddq'))
PIXEL_DECODERS = tuple(name for name, module in CLASSES['model'].items()
                       if module == 'openmmlab.mmdet.detr.pixel_decoders')


class Insertion(NamedTuple):
    """The part of a config's model that takes encodings.

    Attributes:
        kind: 'backbone', 'pool' (a ResNet whose pooling they replace) or 'encoder'.
        path: its keys below ``model``.
        type: of it, or of the detector around an encoder: the config's, or this project's class
            of the same name.
        cls: the class of a backbone; None of an encoder.
        takes: the arguments of that class.
        options: a copy of what the config says there.
    """

    kind: str
    path: tuple[str, ...]
    type: str
    cls: Any
    takes: set[str]
    options: dict[str, Any]


def find_insertion(cfg: Config) -> Insertion:
    """What of a config's model takes encodings: its backbone, else the encoder of a DETR.

    Raises:
        ValueError: nothing does.
    """
    backbone = cfg.model.get('backbone') or ConfigDict()
    names = [(type_name(backbone), backbone.get('type'))]
    if bare_type(backbone) in CLASSES['model']:  # this project's of another library's name
        names.append((f'mmposenc.{bare_type(backbone)}',) * 2)
    for name, each in names:
        cls, takes = class_and_arguments(cfg, each)
        for kind, needed in (('backbone', set(SLOTS)), ('pool', {'context_pool'})):
            if needed <= takes:
                return Insertion(kind, ('backbone',), name, cls, takes, backbone.to_dict())
    for path, known in (((), DETECTORS), (('panoptic_head', 'pixel_decoder'), PIXEL_DECODERS),
                        (('decode_head', 'pixel_decoder'), PIXEL_DECODERS)):
        node: Any = cfg.model
        for key in path:
            node = node.get(key) if isinstance(node, dict) else None
        if isinstance(node, dict) and bare_type(node) in known:
            return Insertion('encoder', (*path, 'encoder'), type_name(node), None, set(),
                             node.get('encoder', ConfigDict()).to_dict())
    raise ValueError(
        f'nothing in the model of this config takes position encodings: its backbone is '
        f'{type_name(backbone) or None!r}, its type {type_name(cfg.model)!r}. Needed: a backbone '
        f'of mmposenc (PVT, ViT, DeiT, Swin, CPResNet) or of the name of one, or one of '
        f'{", ".join(DETECTORS)}, or a pixel decoder of MaskFormer or Mask2Former')


def build_backbone(cfg: Config, device: str = 'meta') -> Any:
    """The backbone of a config's model for inference; on 'meta' without numbers, to be asked for
    its sizes."""
    init_default_scope(scope_of(cfg))
    with torch.device(device):
        return ROOT.build(copy.deepcopy(cfg.model.backbone)).eval()


def class_and_arguments(cfg: Config, kind: Any) -> tuple[Any, set[str]]:
    """The class of a type in the config's model, or None, and its arguments."""
    found = model_class(kind, scope_of(cfg))
    return found, accepted_arguments(found) or set() if found is not None else set()
