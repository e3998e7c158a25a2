"""Reads parts of a config: types, data sets, heads, and the sizes of images."""
from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

from mmengine.config import Config, ConfigDict
from mmengine.dataset import BaseDataset
from mmengine.fileio import list_from_file
from mmengine.registry import DATASETS, DefaultScope, Registry

from mmposenc.config_types import ConfigType, ReadOnlyConfig
from mmposenc.encodings.build import listed


def values_with_keys(key: str, value: object) -> Iterator[tuple[str, Any]]:
    """The values of a list, each with a key such as 'model.neck.0'; any other value with ``key``
    itself."""
    many = isinstance(value, (list, tuple))
    for i, each in enumerate(listed(value)):
        yield f'{key}.{i}' if many else key, each


def keys_and_values(node: object) -> list[tuple[Any, Any]]:
    """The names and values of a dict, or the numbers and values of a list; nothing for other
    values."""
    if isinstance(node, dict):
        return list(node.items())
    return list(enumerate(node)) if isinstance(node, (list, tuple)) else []


def flat_config(node: object, path: str = '') -> dict[str, Any]:
    """The dotted keys of all values in a config, in which lists and tuples count as equal."""
    parts = keys_and_values(node)
    if not parts:
        return {path: list(node) if isinstance(node, tuple) else node}
    return {name: leaf for key, value in parts
            for name, leaf in flat_config(value, f'{path}.{key}'.lstrip('.')).items()}


def value_at(node: object, key: str) -> Any:
    """The value at a dotted key such as 'model.neck.0.type', or None."""
    for part in key.split('.'):
        if isinstance(node, (list, tuple)):
            node = node[int(part)] if part.isdigit() and int(part) < len(node) else None
        else:
            node = node.get(part) if hasattr(node, 'get') else None
    return node


def type_name(node: ReadOnlyConfig) -> str:
    """The type of a node of a config as text; for a class, its name."""
    kind = node.get('type') or ''
    return kind if isinstance(kind, str) else kind.__name__


def type_without_library(node: ReadOnlyConfig) -> str:
    """The type of a node without the library or module in front of it."""
    return type_name(node).rpartition('.')[2]


def find_or_add_custom_hook(cfg: Config, name: str, *, add: bool = True) -> ConfigDict | None:
    """The hook ``mmposenc.NAME`` among a config's custom hooks, or None. With ``add`` it is added
    if it is not there."""
    hooks = cfg.get('custom_hooks') or []
    for hook in hooks:
        if isinstance(hook, dict) and type_without_library(hook) == name.rpartition('.')[2]:
            return hook
    if not add:
        return None
    cfg.custom_hooks = [*hooks, dict(type=name)]
    return cfg.custom_hooks[-1]


def data_sets_with_keys(cfg: Config, *phases: str) -> Iterator[tuple[str, ConfigDict]]:
    """The data sets of some phases, and those inside wrappers such as RepeatDataset and
    ConcatDataset, with their keys."""
    for phase in phases:
        yield from _nested_data_sets(f'{phase}_dataloader.dataset',
                                     value_at(cfg, f'{phase}_dataloader.dataset'))


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


def heads_with_classes(cfg: Config) -> Iterator[tuple[str, ConfigDict]]:
    """The heads that predict classes, with their keys; a region proposal head predicts none,
    mmseg's STDCHead edges, as two classes, and Grounding DINO's head words of a text."""
    names = {'mmseg': ('decode_head', 'auxiliary_head'), 'mmpretrain': ('head',),
             'mmdet': ('bbox_head', 'roi_head.bbox_head', 'roi_head.mask_head', 'panoptic_head',
                       'panoptic_fusion_head')}
    for name in names.get(cfg.get('default_scope'), ()):
        yield from ((key, head) for key,
                    head in values_with_keys(f'model.{name}', value_at(cfg.model, name))
                    if isinstance(head, dict) and type_without_library(head) != 'STDCHead'
                    and 'contrastive_cfg' not in head)


def num_classes_of(head: ConfigDict) -> int | None:
    """How many classes a head has, in Mask2Former's those of objects and of areas together; None
    where it does not say."""
    if head.get('num_things_classes') is not None:
        return int(head['num_things_classes'] + head.get('num_stuff_classes', 0))
    return None if head.get('num_classes') is None else int(head['num_classes'])


def data_sets_with_pipeline(cfg: Config, phase: str) -> Iterator[ConfigDict]:
    """The data sets of a phase that have a pipeline; data sets inside a wrapper come before it."""
    nodes = {id(node): node for _, node in data_sets_with_keys(cfg, phase) if node.get('pipeline')}
    yield from reversed(list(nodes.values()))


def pipelines_of_phase(cfg: Config, phase: str) -> list[list[ConfigDict]]:
    """The pipelines of the data sets that a phase reads."""
    return [list(node['pipeline']) for node in data_sets_with_pipeline(cfg, phase)]


Size = tuple[int, int]
_FAR = 1_000_000
#: Steps of pipelines that set the size of images, by the order of height and width in their
#: argument, and that argument. Names have no scope. mmdet's crop has another order than mmseg's.
_WIDTH_FIRST = {'Resize': 'scale', 'CenterCrop': 'crop_size', 'FixScaleResize': 'scale',
                'Pad': 'size', 'TestRandomCrop': 'crop_size'}
_HEIGHT_FIRST = {'RandomCrop': 'crop_size', 'RandomResizedCrop': 'scale'}
#: Steps that draw one of several sizes for each image.
_DRAWN = ('RandomResize', 'RandomChoiceResize', 'RandomChoice', 'Mosaic', 'RandomApply')
#: The side of an image to inspect if no size is given, and the largest number of its pixels,
#: because attention has a weight for every pair of cells. ``USUAL`` in ``terminal/options.py`` says
#: this in words.
_SIDE, _MOST = 224, 512 * 512


def trained_size(cfg: Config) -> Size | None:
    """The size (H, W) in pixels of the images that a config trains with. It is that of the test if
    training draws a size for each image or keeps the ratio of its sides; None if images keep their
    own sizes.
    """
    return _last_size(cfg, 'train') or tested_size(cfg)


def tested_size(cfg: Config) -> Size | None:
    """The size (H, W) in pixels of the images in a config's test, or None if they keep their own.

    Where the sides' ratio is kept it is that of an image that fills the scale, or of one of 3:4
    where the scale's long side is more than twice its short one and so is no more than a limit.
    """
    return _last_size(cfg, 'test', ratio_kept=True)


def usual_size(cfg: Config) -> Size:
    """The size (H, W) of images for pictures and counts of a config's model, if the user gives
    none. It has as many pixels as the images of training, but at most those of 512 x 512; if
    training has no size, it is the ``img_size`` of the backbone, or 224 x 224."""
    side = (cfg.model.get('backbone') or {}).get('img_size') or _SIDE
    height, width = trained_size(cfg) or ((side, side) if isinstance(side, int) else side)
    share = min(1.0, math.sqrt(_MOST / (height * width)))
    return round(height * share), round(width * share)


def _last_size(cfg: Config, phase: str, *, ratio_kept: bool = False) -> Size | None:
    """The size after the last step that resizes images; with ``ratio_kept`` also if that step keeps
    the ratio of the sides."""
    size: Size | None = None
    for step in [[], *pipelines_of_phase(cfg, phase)][-1]:
        kind = type_without_library(step)
        if kind in _DRAWN:
            size = None
        elif kind in ('ResizeEdge', 'ResizeShortestEdge'):
            size = sides_of_scale(step['scale']) if ratio_kept else None
        elif kind in _WIDTH_FIRST and step.get(_WIDTH_FIRST[kind]) is not None:
            width, height = sides_of_scale(step[_WIDTH_FIRST[kind]])
            size = height, width
            if kind == 'Resize' and step.get('keep_ratio'):
                size = _within(size) if ratio_kept else None
        elif kind in _HEIGHT_FIRST and step.get('crop_type', 'absolute') == 'absolute':
            first, second = sides_of_scale(step[_HEIGHT_FIRST[kind]])
            size = (second, first) if cfg.get('default_scope') == 'mmdet' else (first, second)
        elif kind == 'FixShapeResize':
            size = int(step['height']), int(step['width'])
    return size


def sides_of_scale(scale: float | Sequence[float]) -> Size:
    """Both sides of a scale in pixels; inf and -1, which set no limit, become :data:`_FAR`."""
    first, second = scale if isinstance(scale, (list, tuple)) else (scale, scale)
    return (int(first) if 0 < first < _FAR else _FAR,
            int(second) if 0 < second < _FAR else _FAR)


def _within(size: Size) -> Size:
    short, long = sorted(size)
    return size if long <= 2 * short else (short, round(short * 4 / 3))


#: The classes of this project that replace those of the libraries, which read annotations without
#: checks, and the arguments with which they leave to the user what the libraries' leave to them.
_CHECKED: dict[str, dict[str, Any]] = {
    'mmdet.CocoDataset': dict(type='mmposenc.CocoDataset', unknown_categories='drop',
                              check_images=False),
    'mmpretrain.CustomDataset': dict(type='mmposenc.CustomDataset', check_images=False),
    **{f'mmdet.{name}': dict(type='mmposenc.CocoMetric')
       for name in ('CocoMetric', 'FasterCocoMetric')}}


def checked(described: Any) -> Any:
    """Replace the libraries' data sets and CocoMetric in a description of data sets or metrics by
    this project's classes, which check what they read and evaluate what was loaded.

    Args:
        described: a dict, a list of them, or something that is built already, which is returned.
    """
    if isinstance(described, (list, tuple)):
        return [checked(each) for each in described]
    if not isinstance(described, dict):
        return described
    node = {key: checked(value) if key in ('dataset', 'datasets', 'metrics') else value
            for key, value in described.items()}
    kind, name, scope = node.get('type'), type_name(node), DefaultScope.get_current_instance()
    if not isinstance(kind, str):
        name = f'{getattr(kind, "__module__", "").partition(".")[0]}.{name}'
    elif '.' not in name and scope is not None:
        name = f'{scope.scope_name}.{name}'
    if name in _CHECKED:
        node = {**_CHECKED[name], **node, 'type': _CHECKED[name]['type']}
    metainfo = node.get('metainfo')
    if isinstance(metainfo, dict) and isinstance(metainfo.get('palette'), (list, tuple)):
        # Visualizers take a list for several colours, and stop if a single colour is a list.
        colours = [tuple(each) if isinstance(each, list) else each for each in metainfo['palette']]
        node['metainfo'] = {**metainfo, 'palette': colours}
    return node


def build_checked() -> None:
    """Let all registries of data sets and metrics build the classes of :func:`checked` in this
    process, for scripts that do so without this project's runner."""
    build = Registry.build

    def build_ours(self: Registry, cfg: Any, *args: object, **kwargs: object) -> Any:
        return build(self, checked(cfg) if self.name in ('dataset', 'metric') else cfg,
                     *args, **kwargs)

    Registry.build = build_ours


def build_data_set(described: ConfigType | BaseDataset) -> BaseDataset:
    """Build a data set of the default scope and read its annotations, which some data sets do only
    when they are asked for."""
    dataset = DATASETS.build(checked(described))
    if hasattr(dataset, 'full_init'):
        dataset.full_init()
    return dataset
