"""Changes a config so that it trains on a folder of the user: ``mmposenc train CONFIG --data DIR``.
"""
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from mmengine.config import Config

from mmposenc.config_types import ConfigType
from mmposenc.openmmlab.datasets.coco_files import Coco, coco_part, read_coco
from mmposenc.openmmlab.datasets.image_files import PICTURES, files_below
from mmposenc.openmmlab.datasets.lists import lines_of
from mmposenc.terminal.processes import print_in_first_process

from ..prepare.convert import ADE_PARTS
from ..prepare.objects import object_sizes_text
from .anchors import box_sizes, unmatched_boxes_text
from .nodes import keys_and_values, listed, type_name
from .parsed import ParsedConfig, num_classes_of

_SCOPES = {'mmdet': 'train.json and val.json with the folders train and val, as mmposenc prepare '
                    '--from yolo writes them, or annotations/instances_train2017.json and '
                    'instances_val2017.json beside train2017 and val2017',
           'mmseg': 'images and annotations with the folders training and validation, and '
                    'classes.txt, as mmposenc prepare --from masks writes them',
           'mmpretrain': 'train and val with a folder a class'}

#: So many names of classes are printed.
_SHOWN = 50


class _Part(NamedTuple):
    """A part of a folder: the arguments of its data set, what its file in COCO's format holds, and
    its classes."""

    arguments: ConfigType
    content: Coco
    classes: list[str]


def point_to_folder(cfg: Config, folder: str) -> None:
    """Points data sets and metrics to a folder, and fills in the names and number of classes.

    Args:
        cfg: changed in place.
        folder: in the layout of :data:`_SCOPES`, as ``mmposenc prepare --from`` writes it. Tests
            use its ``test`` where there is one, else ``val``.

    Raises:
        ValueError: the folder has another layout, its parts have other classes, or a head of the
            model has no ``num_classes``, or classes of areas beside those of objects.
    """
    parsed = ParsedConfig(cfg)
    try:
        parts = _parts_of_folder(Path(folder), parsed.scope)
        for phase, part in parts.items():
            _read_part(parsed, phase, part)
        classes = parts['train'].classes
        _predict_classes(parsed, len(classes))
        for key in ('data_root', 'metainfo', 'classes'):  # what a file says of its own data
            cfg.pop(key, None)
    except ValueError as error:
        raise ValueError(f'--data {folder}: {error}') from error
    more = f', and {len(classes) - _SHOWN} more' * (len(classes) > _SHOWN)
    print_in_first_process(f'{folder}: classes {", ".join(classes[:_SHOWN])}{more}')
    if parsed.scope == 'mmdet':
        content = parts['train'].content
        for line in filter(None, (object_sizes_text(*box_sizes(content)),
                                  unmatched_boxes_text(parsed, content))):
            print_in_first_process(f'{folder}: {line}')


def _parts_of_folder(root: Path, scope: str | None) -> dict[str, _Part]:
    """The part of a folder for each phase; all have the same classes."""
    if scope not in _SCOPES:
        raise ValueError(f'default_scope={scope!r} must be one of {", ".join(_SCOPES)}')
    arguments_of = {part: _data_set_arguments(root, scope, part) for part in ADE_PARTS}
    if lacking := [part for part in ('train', 'val') if not arguments_of[part]]:
        raise ValueError(f'{" and ".join(lacking)} not found; {scope} needs {_SCOPES[scope]}')
    parts = {}
    for part, arguments in arguments_of.items():
        if arguments:
            content = read_coco(root / arguments['ann_file']) if scope == 'mmdet' else {}
            parts[part] = _Part(arguments, content, _class_names_in(root, scope, part, content))
    classes = parts['train'].classes
    if hidden := [name for name in classes if scope == 'mmpretrain' and name.startswith('.')]:
        raise ValueError(f'train/{hidden[0]} is a hidden folder, which would be a class; delete it')
    if not classes:
        raise ValueError(f'train holds no folders; {scope} needs {_SCOPES[scope]}')
    for part, each in parts.items():
        if each.classes != classes:
            raise ValueError(f'the classes of {part} are {each.classes}, those of train {classes}; '
                             'they must be the same in the same order')
    return {**parts, 'test': parts.get('test', parts['val'])}


def _read_part(parsed: ParsedConfig, phase: str, part: _Part) -> None:
    """Let the data sets and metrics of a phase read a part of a folder."""
    for node in parsed.data_sets(phase).values():
        # This is a data set and no wrapper of others.
        if not {'dataset', 'datasets'} & set(node):
            for key in ('split', 'download', 'data_prefix'):  # An update would merge prefixes.
                node.pop(key, None)
            node.update(part.arguments, metainfo=dict(
                classes=tuple(part.classes), palette=random_colours(len(part.classes))))
            _load_picture_files(node, parsed.channels)
    for step in (step for node in parsed.data_sets_with_pipeline(phase) for step in node.pipeline):
        step.pop('reduce_zero_label', None)  # mmseg's configs of ADE20K set it here, too.
        _check_what_is_read(step, parsed.library)
    for metric in parsed.metrics(phase).values():
        if metric.get('ann_file'):
            metric['ann_file'] = str(Path(part.arguments['data_root'], part.arguments['ann_file']))


def _predict_classes(parsed: ParsedConfig, number: int) -> None:
    """Let a model predict so many classes, all of objects."""
    for key, head in parsed.heads.items():
        before = num_classes_of(head)
        if before is None:
            raise ValueError(f'{key} has no num_classes to fill in; write the classes into the '
                             'config instead')
        if head.get('num_stuff_classes'):
            raise ValueError(f'{key}.num_stuff_classes={head["num_stuff_classes"]} must be 0: the '
                             'folder has objects alone; take a config for instances')
        _set_head_classes(key, head, before, number)
    for node in (*parsed.heads.values(), *parsed.metrics('train', 'val', 'test').values()):
        if parsed.scope == 'mmpretrain' and 'topk' in node:
            node['topk'] = _possible_topk(node['topk'], number)
    if parsed.preprocessor.get('num_classes'):
        parsed.preprocessor['num_classes'] = number


def random_colours(number: int) -> list[tuple[int, ...]]:
    """RGB colours of so many classes, the same in each call."""
    drawn = np.random.default_rng(42).integers(0, 256, (number, 3)).tolist()
    # Visualizers take a list for several colours, so one colour must be a tuple.
    return [tuple(colour) for colour in drawn]


def _load_picture_files(node: ConfigType, channels: int) -> None:
    """Let a data set read picture files, if its pipeline was made for one that holds arrays, such
    as MNIST's. They are read as grey if the model takes one channel."""
    steps = list(node.get('pipeline') or [])
    if steps and not any('Load' in str(step.get('type')) for step in steps):
        load = dict(type='mmposenc.LoadImageFromFile',
                    color_type='grayscale' if channels == 1 else 'color')
        node['pipeline'] = [load, *steps]


def _check_what_is_read(step: ConfigType, scope: str) -> None:
    """Let a step that reads files with mmcv or mmseg do it with this project's class, which refuses
    half a picture and names the file that is broken."""
    name = type_name(step).removeprefix(f'{scope}.')
    if name == 'LoadImageFromFile':
        step['type'] = 'mmposenc.LoadImageFromFile'
    elif name == 'LoadAnnotations' and scope == 'mmseg':
        step['type'] = 'mmposenc.LoadSegAnnotations'


def _possible_topk(topk: int | Sequence[int], classes: int) -> tuple[int, ...]:
    """Of several top-k accuracies, those with no more classes than there are."""
    return tuple(k for k in listed(topk) if k <= classes) or (1,)


def _set_head_classes(key: str, node: ConfigType, before: int, now: int) -> None:
    """Give a head, and the losses in it, another number of classes.

    Weights of classes that are equal, but for that of the background behind them, become as many
    as there are classes now. Others are those of other classes: they are left out, and named.
    """
    for name, value in keys_and_values(node):
        if name in ('num_classes', 'num_things_classes') and value == before:
            node[name] = now
        elif name == 'class_weight' and isinstance(value, (list, tuple)):
            background = len(value) - before
            if before == now or background not in (0, 1):
                continue
            if len(set(value[:before])) == 1:
                node[name] = [value[0]] * now + list(value[before:])
            else:
                del node[name]
                print_in_first_process(
                    f'{key}.{name}: left out, its {len(value)} weights are those of other '
                        'classes')
        else:
            _set_head_classes(f'{key}.{name}', value, before, now)


def _class_names_in(root: Path, scope: str, part: str, content: Coco) -> list[str]:
    if scope == 'mmpretrain':
        return sorted(path.name for path in (root / part).iterdir() if path.is_dir())
    if scope == 'mmdet':
        return [each['name'] for each in content['categories']]
    try:
        return lines_of(root / 'classes.txt')
    except OSError as error:
        raise ValueError(f'{root / "classes.txt"} does not name the classes: {error}') from error


def _data_set_arguments(root: Path, scope: str, part: str) -> ConfigType:
    """The arguments of the data set for one part (train, val or test); {} without the part."""
    if scope == 'mmdet':
        file, pictures = coco_part(root, part) or ('', '')
        return dict(type='mmposenc.CocoDataset', data_root=f'{root}/', ann_file=file,
                    data_prefix=dict(img=f'{pictures}/')) if file else {}
    folder = f'images/{ADE_PARTS[part]}' if scope == 'mmseg' else part
    if not (root / folder).is_dir():
        return {}
    if scope == 'mmpretrain':
        return dict(type='mmposenc.CustomDataset', data_root=str(root), ann_file='',
                    data_prefix=part, extensions=PICTURES)
    suffixes = sorted({Path(path).suffix for path in files_below(root / folder)
                       if path.lower().endswith(PICTURES)})
    if not suffixes:
        raise ValueError(f'{folder} has no picture ({", ".join(PICTURES)})')
    prefix = dict(img_path=folder, seg_map_path=f'annotations/{ADE_PARTS[part]}')
    return dict(type='mmposenc.SegDataset', data_root=f'{root}/', ann_file='', data_prefix=prefix,
                img_suffix=tuple(suffixes), seg_map_suffix='.png', reduce_zero_label=False)
