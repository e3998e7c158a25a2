"""Reads from a config what commands, checks and comparisons ask of it."""
from __future__ import annotations

import math
import os
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from mmengine.config import Config, ConfigDict
from mmengine.fileio import list_from_file
from mmengine.registry import DATASETS
from mmengine.registry import MODELS as ROOT

from mmposenc.checkpoint.encoding_names import SLOTS
from mmposenc.class_index import CLASSES
from mmposenc.config_types import ConfigType, ReadOnlyConfig
from mmposenc.registry import MODELS
from mmposenc.signatures import accepted_arguments, parameters_of
from mmposenc.user_classes import is_file_class

from .image_sizes import Size, size_after
from .nodes import (
    keys_and_values,
    type_name,
    type_without_library,
    typed_parts,
    value_at,
    values_with_keys,
)

#: For each default_scope, the library's task.
TASKS = {'mmpretrain': 'classification', 'mmdet': 'detection', 'mmseg': 'segmentation'}
#: The side of an image to inspect if no size is given, and the largest number of its pixels,
#: because attention has a weight for every pair of cells. ``USUAL`` in ``terminal/options.py`` says
#: this in words.
_SIDE, _MOST = 224, 512 * 512


class Insertion(NamedTuple):
    """The part of a config's model that takes encodings.

    Attributes:
        kind: 'backbone' or 'encoder'.
        path: its keys below ``model``.
        type: the type of the backbone, or of the detector, neck or pixel decoder around an encoder:
            the config's, or this project's class of the same name.
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


class ParsedConfig:
    """A config, and what it says. Each thing is read when it is first asked for.

    Whatever changes the data or the model of a config hands on the config, and a new record is
    made of it.

    Args:
        cfg: the whole config.

    Attributes:
        cfg: as above.
        scope: its ``default_scope``, which may be None.
        model: the config of its model; an empty one if it has none.
    """

    def __init__(self, cfg: Config) -> None:
        self.cfg, self.scope = cfg, cfg.get('default_scope')
        self.model: ConfigDict = cfg.get('model') or ConfigDict()

    @property
    def library(self) -> str:
        """The library that the config is for: 'mmdet', 'mmseg' or 'mmpretrain'.

        Raises:
            ValueError: its ``default_scope`` is none of them.
        """
        if self.scope not in TASKS:
            raise ValueError(f'default_scope={self.scope!r} in the config: it must be one of '
                             f'{", ".join(map(repr, TASKS))} to choose how to test and draw')
        return str(self.scope)

    def data_sets(self, *phases: str) -> dict[str, ConfigDict]:
        """The data sets of some phases, and those inside wrappers such as RepeatDataset and
        ConcatDataset, by their keys."""
        return dict(each for phase in phases for each in _nested_data_sets(
            f'{phase}_dataloader.dataset', value_at(self.cfg, f'{phase}_dataloader.dataset')))

    def data_sets_with_pipeline(self, phase: str) -> list[ConfigDict]:
        """The data sets of a phase that have a pipeline; those inside a wrapper come before it."""
        return [*{id(node): node for node in self.data_sets(phase).values()
                  if node.get('pipeline')}.values()][::-1]

    def pipeline(self, phase: str) -> list[ConfigDict]:
        """The last steps that images of a phase go through: those of the outermost data set that
        has any."""
        nodes = self.data_sets_with_pipeline(phase)
        return list(nodes[-1]['pipeline']) if nodes else []

    def metrics(self, *phases: str) -> dict[str, ConfigDict]:
        """The metrics of some phases by their keys."""
        return {key: metric for phase in phases for key, metric in values_with_keys(
            f'{phase}_evaluator', self.cfg.get(f'{phase}_evaluator')) if isinstance(metric, dict)}

    def folders_of_data(self, first: str = 'test', *, of_classes: bool = False) -> dict[str, str]:
        """The folders of the data of all phases, those of ``first`` before others, by keys of the
        config; nothing is written there. With ``of_classes`` only those in which every folder is a
        class."""
        folders = {}
        for key, node in self.data_sets(*dict.fromkeys((first, 'train', 'val', 'test'))).items():
            if of_classes and not class_folders(node):
                continue
            # Without a prefix, the root has the pictures.
            for name, value in (folders_in(node) or {'': ''}).items():
                folder = os.path.join(node.get('data_root') or '', value or '')
                if os.path.isdir(folder):
                    folders[f'{key}.data_prefix.{name}'.rstrip('.')] = folder
        return folders

    @cached_property
    def heads(self) -> dict[str, ConfigDict]:
        """The outermost parts of the model that predict classes, by their keys: they say how many,
        or their class cannot do without."""
        return _heads('model', self.model, self.scope) if self.scope in TASKS else {}

    @property
    def preprocessor(self) -> ConfigType:
        """The data preprocessor, in the model or at the top level; {} if there is none."""
        return self.model.get('data_preprocessor') or self.cfg.get('data_preprocessor') or {}

    @property
    def backbone(self) -> ConfigDict:
        """The backbone of the model; an empty one if it has none."""
        return self.model.get('backbone') or ConfigDict()

    @property
    def channels(self) -> int:
        """The number of channels of the images that the model takes; one means grey."""
        return int(self.backbone.get('in_channels', 3))

    @cached_property
    def trained_size(self) -> Size | None:
        """The size (H, W) in pixels of the images of the training. It is that of the test if
        training draws a size for each image or keeps the ratio of its sides; None if images keep
        their own sizes."""
        return size_after(self.pipeline('train'), self.scope) or self.tested_size

    @cached_property
    def tested_size(self) -> Size | None:
        """The size (H, W) in pixels of the images of the test, or None if they keep their own.

        Where the sides' ratio is kept it is that of an image that fills the scale, or of one of 3:4
        where the scale's long side is more than twice its short one and so is no more than a limit.
        """
        return size_after(self.pipeline('test'), self.scope, ratio_kept=True)

    @property
    def usual_size(self) -> Size:
        """The size (H, W) of images for pictures and counts of the model, if the user gives none.
        It has as many pixels as the images of training, but at most those of 512 x 512; if training
        has no size, it is the ``img_size`` of the backbone, or 224 x 224."""
        side = self.backbone.get('img_size') or _SIDE
        height, width = self.trained_size or ((side, side) if isinstance(side, int) else side)
        share = min(1.0, math.sqrt(_MOST / (height * width)))
        return round(height * share), round(width * share)

    @property
    def length(self) -> tuple[int, str]:
        """How long the config trains: a number, and 'epochs' or 'iterations'.

        Raises:
            ValueError: its train_cfg does not say.
        """
        loop = self.cfg.get('train_cfg') or {}
        by_epoch = loop.get('by_epoch',
                            not type_without_library(loop).endswith('IterBasedTrainLoop'))
        unit, key = ('epochs', 'max_epochs') if by_epoch else ('iterations', 'max_iters')
        number = loop.get(key)
        if not isinstance(number, int) or number < 1:
            raise ValueError(f'train_cfg.{key}={number!r}: it must say for how many {unit} to '
                             'train')
        return number, unit

    @cached_property
    def insertion(self) -> Insertion:
        """The part of the model that takes encodings: its backbone, otherwise the encoder of the
        first part whose class says in which argument it has one (``encodings_in``).

        Raises:
            ValueError: the ``default_scope`` is no library's, or nothing takes encodings.
        """
        backbone, library = self.backbone, self.library
        for kind in _kinds(backbone):
            cls = model_class(kind, library)
            takes = accepted_arguments(cls) or set()
            if set(SLOTS) <= takes:
                return Insertion('backbone', ('backbone',), type_name({'type': kind}), cls, takes,
                                 backbone.to_dict())
        for path, node in typed_parts(self.model):
            for kind in _kinds(node)[::-1]:
                cls = model_class(kind, library)
                if argument := getattr(cls, 'encodings_in', None):
                    return Insertion('encoder', (*path, argument), type_name(node), cls,
                                     accepted_arguments(cls) or set(),
                                     dict(node.get(argument) or {}))
        raise ValueError(
            f'nothing in the model of this config takes position encodings: its backbone is '
            f'{type_name(backbone)!r}, its type {type_name(self.model)!r}. Put one of these in '
            f'its place (docs/your-config.md): {", ".join(own_backbones(*SLOTS))}. Or take a '
            "detector of mmdet's DETR family, a pixel decoder of MaskFormer or Mask2Former, or "
            'the neck mmposenc.HybridEncoder')


#: Parts of models that predict other classes than those of the data set: proposals have one, an
#: auxiliary head of areas beside one of objects has another data set's, and people are no classes;
#: mmseg's STDCHead predicts edges.
_OTHER_PARTS = ('rpn_head', 'semantic_head', 'reid', 'train_cfg', 'test_cfg')
_OTHER_TYPES = ('STDCHead', 'LinearReIDHead')


def _heads(key: str, node: object, scope: str | None) -> dict[str, ConfigDict]:
    """A part of a model if it predicts classes, otherwise those in it that do."""
    if isinstance(node, dict):
        # A head with contrastive_cfg predicts words of a text.
        if type_without_library(node) in _OTHER_TYPES or 'contrastive_cfg' in node:
            return {}
        if num_classes_of(node) is not None:
            return {key: node}
    heads = {inner: head for name, value in keys_and_values(node) if name not in _OTHER_PARTS
             for inner, head in _heads(f'{key}.{name}', value, scope).items()}
    if not heads and isinstance(node, dict) and (cls := model_class(node.get('type'), scope)):
        number = parameters_of(cls).get('num_classes')
        return {key: node} if number and number.default is number.empty else {}
    return heads


def _kinds(node: ConfigDict) -> list[Any]:
    """The type of a node, then that of this project's class of the same name if there is one."""
    name = type_without_library(node)
    return [node.get('type'), *([f'mmposenc.{name}'] if name in CLASSES['model'] else [])]


def _nested_data_sets(key: str, node: object) -> Iterator[tuple[str, ConfigDict]]:
    if isinstance(node, dict):
        yield key, node
        yield from _nested_data_sets(f'{key}.dataset', node.get('dataset'))
        for name, child in values_with_keys(f'{key}.datasets', node.get('datasets') or []):
            yield from _nested_data_sets(name, child)


def metainfo_entry(dataset: ReadOnlyConfig, scope: str | None, key: str) -> Any:
    """The ``classes`` or ``palette`` of a data set: those in the config, otherwise those of its
    class, such as ADE20KDataset; or None."""
    metainfo = dataset.get('metainfo') or {}
    if not isinstance(metainfo, dict) or 'CLASSES' in metainfo:  # as in mmdet 2 and 3.0.0rc
        raise ValueError(f"metainfo={str(metainfo)[:60]} must be a dict such as "
                         "dict(classes=('square', 'disc'))")
    value = metainfo.get(key)
    if isinstance(value, str):  # mmengine reads the lines of this file.
        if not os.path.isfile(value):
            raise ValueError(f'metainfo.{key}={value!r} must be a list of names or the path of a '
                             f'file with a name a line; of one name write ({value!r},)')
        return list_from_file(value)
    if value or not isinstance(dataset.get('type'), str):
        return value
    with DATASETS.switch_scope_and_registry(scope) as registry:
        cls = registry.get(dataset['type'])
    return (getattr(cls, 'METAINFO', None) or {}).get(key)


def folders_in(dataset: ReadOnlyConfig) -> dict[str, str]:
    """The folders of a data set by their names in its ``data_prefix``; a single one has none."""
    prefix = dataset.get('data_prefix') or {}
    return dict(prefix) if isinstance(prefix, dict) else {'': prefix}


def class_folders(dataset: ReadOnlyConfig) -> list[str]:
    """The folders that mmpretrain's CustomDataset takes as classes, in their order."""
    if (type_without_library(dataset) != 'CustomDataset' or dataset.get('ann_file')
            or not dataset.get('with_label', True)):
        return []
    prefixes = folders_in(dataset)
    folder = os.path.join(dataset.get('data_root') or '',
                          prefixes.get('', prefixes.get('img_path', '')))
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_dir()) \
        if os.path.isdir(folder) else []


def num_classes_of(head: ConfigDict) -> int | None:
    """How many classes a head has, in Mask2Former's those of objects and of areas together; None
    where it does not say."""
    if head.get('num_things_classes') is not None:
        return int(head['num_things_classes'] + head.get('num_stuff_classes', 0))
    return None if head.get('num_classes') is None else int(head['num_classes'])


def model_class(name: str | type | None, scope: str | None) -> type | None:
    """The class that ``type=name`` means in a model of a library, or None."""
    if not isinstance(name, str):
        return name
    if is_file_class(name):
        return MODELS.get(name)
    with ROOT.switch_scope_and_registry(scope) as local:
        cls = local.get(name)
    return MODELS.module_dict.get(name) if cls is None and name not in CLASSES['model'] else cls


def own_backbones(*arguments: str) -> list[str]:
    """The names of this project's backbones that take some arguments."""
    return sorted(name for name, module in CLASSES['model'].items()
                  if module.startswith('backbones.')
                  and {*arguments} <= (accepted_arguments(MODELS.get(name)) or set()))
