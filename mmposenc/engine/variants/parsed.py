"""Reads once from a config all that is needed to put encodings into it."""
from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from mmengine.config import Config, ConfigDict
from mmengine.registry import MODELS as ROOT
from mmengine.registry import init_default_scope
from torch import nn

from mmposenc.checkpoint.encoding_names import SLOTS
from mmposenc.class_index import CLASSES
from mmposenc.config_types import ConfigType, ReadOnlyConfig
from mmposenc.engine.config.arguments import model_class
from mmposenc.engine.config.models import preprocessor_as_written
from mmposenc.engine.config.nodes import (
    Size,
    keys_and_values,
    tested_size,
    trained_size,
    type_name,
    type_without_library,
)
from mmposenc.engine.config.testing import scope_of
from mmposenc.signatures import accepted_arguments


class Insertion(NamedTuple):
    """The part of a config's model that takes encodings.

    Attributes:
        kind: 'backbone' or 'encoder'.
        path: its keys below ``model``.
        type: of it, or of the detector, neck or pixel decoder around an encoder: the config's, or
            this project's class of the same name.
        cls: the class of this type.
        takes: the arguments of that class.
        options: a copy of what the config says there.
    """

    kind: str
    path: tuple[str, ...]
    type: str
    cls: Any
    takes: set[str]
    options: ConfigType


@dataclass(frozen=True)
class ParsedConfig:
    """A config that encodings are put into, and all that is asked of it to do so.

    Attributes:
        cfg: the config itself, which is copied and never changed.
        scope: its library: 'mmdet', 'mmseg' or 'mmpretrain'.
        insertion: the backbone or encoder that takes encodings.
        preprocessor: its data preprocessor; {} if it has none.
        trained_size, tested_size: (H, W) in pixels of its images; None where they differ.
    """

    cfg: Config
    scope: str
    insertion: Insertion
    preprocessor: ReadOnlyConfig
    trained_size: Size | None
    tested_size: Size | None


def parse_config(cfg: Config) -> ParsedConfig:
    """Read from a config all that is needed to put encodings into it.

    Raises:
        ValueError: its default_scope is no library's, or nothing in its model takes encodings.
    """
    scope = scope_of(cfg)
    insertion = _insertion_of(scope, cfg.get('model') or ConfigDict())
    return ParsedConfig(cfg, scope, insertion, preprocessor_as_written(cfg), trained_size(cfg),
                        tested_size(cfg))


def _insertion_of(scope: str, model: ConfigDict) -> Insertion:
    """Which part of a model takes encodings: its backbone, otherwise the encoder of the first part
    whose class says in which argument it has one (``encodings_in``)."""
    backbone = model.get('backbone') or ConfigDict()
    names = [(type_name(backbone), backbone.get('type'))]
    name = type_without_library(backbone)
    if name in CLASSES['model']:  # This project's class for another library's name.
        names.append((f'mmposenc.{name}', f'mmposenc.{name}'))
    for name, kind in names:
        cls = model_class(kind, scope)
        takes = accepted_arguments(cls) or set()
        if set(SLOTS) <= takes:
            return Insertion('backbone', ('backbone',), name, cls, takes, backbone.to_dict())
    for path, node in _parts(model, ()):
        name = type_without_library(node)
        for kind in (f'mmposenc.{name}', node['type']) if name in CLASSES['model'] else (
                node['type'],):
            cls = model_class(kind, scope)
            if argument := getattr(cls, 'encodings_in', None):
                return Insertion('encoder', (*path, argument), type_name(node), cls,
                                 accepted_arguments(cls) or set(),
                                 dict(node.get(argument) or {}))
    raise ValueError(
        f'nothing in the model of this config takes position encodings: its backbone is '
        f'{type_name(backbone)!r}, its type {type_name(model)!r}. Needed: a backbone of mmposenc '
        "(PVT, ViT, DeiT, Swin) or of the name of one, a detector of mmdet's DETR family, a pixel "
        'decoder of MaskFormer or Mask2Former, or the neck mmposenc.HybridEncoder')


def _parts(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], ConfigDict]]:
    """The parts of a model that have a type, the outer ones first, with their keys."""
    if isinstance(node, dict) and 'type' in node:
        yield path, node
    for key, value in keys_and_values(node):
        yield from _parts(value, (*path, str(key)))


def build_backbone(scope: str, backbone: ReadOnlyConfig, device: str = 'meta') -> nn.Module:
    """Build a backbone for inference; on 'meta' it has no numbers and can only be asked for its
    sizes."""
    init_default_scope(scope)
    with torch.device(device):
        built: nn.Module = ROOT.build(copy.deepcopy(backbone)).eval()
    return built
