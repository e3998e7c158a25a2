"""Reads files in COCO's format, with checks for errors that mmdet would train on without a message.
It needs no OpenMMLab.
"""
from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

#: The content of a file in COCO's format.
Coco = dict[str, Any]
#: For each name that tools give to the folder or the list of a part of a data set, the part.
PART_OF_NAME = {'train': 'train', 'training': 'train', 'val': 'val', 'valid': 'val',
                'validation': 'val', 'test': 'test', 'testing': 'test'}


def coco_part(root: Path, part: str) -> tuple[str, str] | None:
    """The annotation file of a part (train, val or test) and its folder of pictures, below
    ``root``; None if there are none.

    These layouts are known: ``train.json`` beside ``train``, as ``mmposenc prepare`` writes it;
    ``annotations/instances_train2017.json`` beside ``train2017``, which may lie in ``images``; and
    ``train/_annotations.coco.json`` among the pictures.
    """
    patterns = '{0}.json', 'annotations/{0}.json', 'annotations/instances_{0}*.json'
    for name in (name for name, each in PART_OF_NAME.items() if each == part):
        for file in (path for each in patterns for path in sorted(root.glob(each.format(name)))):
            folder = file.stem.removeprefix('instances_')
            for place in (folder, f'images/{folder}'):
                if (root / place).is_dir():
                    return file.relative_to(root).as_posix(), place
        if (root / name / '_annotations.coco.json').is_file():
            return f'{name}/_annotations.coco.json', name
    return None


def read_coco(path: str | Path, dropped: Counter[str] | None = None) -> Coco:
    """Read an annotation file and check everything that training uses.

    Args:
        path: the file.
        dropped: counts annotations of images that are not in the file; they are left out.

    Raises:
        ValueError: it names the file, the entry and the error: no JSON, a missing section or key,
            an id that occurs twice, a value of another kind, a box that is not four finite numbers.
    """
    try:
        with open(path, 'rb') as file:
            data = json.load(file)
    except (ValueError, RecursionError) as error:
        raise ValueError(f'{path} is not a complete JSON file: {error}') from error
    if not isinstance(data, dict):
        raise ValueError(f'{path} holds a {type(data).__name__}; a COCO file must be a dict with '
                         'images, annotations and categories')
    data.setdefault('annotations', [])
    for section in _SECTIONS:
        _check_section(path, data, section)
    for name, count in Counter(each['name'] for each in data['categories']).items():
        if count > 1:
            raise ValueError(f'{path}: {count} categories have the name {name!r}; delete the '
                             'unused one (Roboflow adds one for the project, of no object)')
    images = {image['id'] for image in data['images']}
    known = [ann for ann in data['annotations'] if ann['image_id'] in images]
    if dropped is not None and (lost := len(data['annotations']) - len(known)):
        dropped['of an image that the file does not have'] += lost
    for ann in known:
        if ann.get('area') is None:
            ann['area'] = max(ann['bbox'][2], 0) * max(ann['bbox'][3], 0)
    data['annotations'] = known
    return data


def _is_number(value: Any) -> bool:
    # NaN is not smaller than any number.
    return isinstance(value, (int, float)) and abs(value) < 1e15


#: Which values are right, and what is said of others.
_Rule = tuple[Callable[[Any], bool], str]
_WHOLE: _Rule = lambda value: type(value) is int, 'a whole number'
_TEXT: _Rule = lambda value: isinstance(value, str), 'text'
_FLAG: _Rule = lambda value: value in (0, 1), '0 or 1'  # Any text would count as true.
_PIXELS: _Rule = (lambda value: _is_number(value) and value >= 1 and value == int(value),
                  'a whole number of pixels')
_AREA: _Rule = lambda value: value is None or _is_number(value), 'a finite number'
_BOX: _Rule = (lambda value: isinstance(value, list) and len(value) == 4
               and all(map(_is_number, value)), 'four finite numbers')
#: For each section of a file, the keys that are read.
_SECTIONS: dict[str, dict[str, _Rule]] = {
    'images': dict(id=_WHOLE, file_name=_TEXT, height=_PIXELS, width=_PIXELS),
    'categories': dict(id=_WHOLE, name=_TEXT),
    'annotations': dict(id=_WHOLE, image_id=_WHOLE, category_id=_WHOLE, bbox=_BOX, area=_AREA,
                        iscrowd=_FLAG, ignore=_FLAG)}
_OPTIONAL = ('area', 'iscrowd', 'ignore')


def _check_section(path: str | Path, data: Coco, section: str) -> None:
    """Raise ValueError if entries lack a key, if two have the same id, or if a value is not what
    mmdet takes it for."""
    entries = data.get(section)
    if not isinstance(entries, list):
        state = 'is missing' if section not in data else f'is a {type(entries).__name__}'
        raise ValueError(f'{path}: {section!r} {state}; it must be a list')
    if not entries and section != 'annotations':
        raise ValueError(f'{path}: {section!r} is empty')
    for i, entry in enumerate(entries):
        lacks = [key for key in _SECTIONS[section] if key not in _OPTIONAL and (
            not isinstance(entry, dict) or entry.get(key) in (None, ''))]
        if lacks:
            raise ValueError(f'{path}: {section}[{i}] lacks {", ".join(lacks)}')
        for key, (is_right, words) in _SECTIONS[section].items():
            if key in entry and not is_right(entry[key]):
                raise ValueError(f'{path}: {section}[{i}]: {key}={entry[key]!r} must be {words}')
    for number, count in Counter(entry['id'] for entry in entries).items():
        if count > 1:
            raise ValueError(f'{path}: {count} entries of {section!r} have the id {number}')


def has_area(mask: Any, size: tuple[int, int]) -> bool:
    """Whether mmdet makes a mask of a segmentation; it makes none of polygons that are too small.

    Args:
        mask: polygons or a dict of run lengths, in COCO's format.
        size: (height, width) of the image in pixels.

    Raises:
        ValueError: it is neither of them, or its size is not the image's.
    """
    if isinstance(mask, dict):
        if mask.get('size') != [*size]:
            raise ValueError(f"segmentation: size={mask.get('size')!r} must be the image's, "
                             f'{[*size]}')
        counts = mask.get('counts')
        runs = run_lengths(counts) if isinstance(counts, str) else counts
        # pycocotools writes beyond the mask where the runs are too long, and leaves what was in
        # memory where they are too short.
        if not isinstance(runs, list) or not all(
                type(run) is int and run >= 0 for run in runs) or sum(runs) != size[0] * size[1]:
            raise ValueError(f'segmentation: counts={str(counts)[:40]!r} must be the lengths of '
                             f'runs that cover {size[0]}x{size[1]} pixels')
        return True
    try:
        if not mask or not all(isinstance(each, list) and max(each, default=0) < 1e9
                               and min(each, default=0) > -1e9 and sum(each) == sum(each)
                               for each in mask) or {*map(len, mask)} == {2}:
            raise TypeError
    except TypeError:
        raise ValueError(f'segmentation={str(mask)[:60]} must be a list of polygons [x1, y1, x2, '
                         'y2, ...] or a dict with size and counts, where masks are loaded or '
                         'evaluated; for boxes alone take a detector without a mask head, such as '
                         "Faster R-CNN or RetinaNet, and metric='bbox'") from None
    return any(map(is_outline, mask))


def is_outline(polygon: list[float]) -> bool:
    """Whether a list has the coordinates of three corners or more."""
    return len(polygon) % 2 == 0 and len(polygon) >= 6


def run_lengths(text: str) -> list[int] | None:
    """The lengths of runs in the compressed text of pycocotools; None if it is no such text.

    Each letter has five bits of a number, the lowest first, and a sixth if more follow. From the
    fourth number on, it is the difference from the number two places before.
    """
    codes = np.frombuffer(text.encode(), np.uint8).astype(np.int64) - 48
    last = np.flatnonzero(codes < 32)  # the last letter of each number
    lengths = np.diff(last, prepend=-1)
    if not last.size or last[-1] != codes.size - 1 or codes.min() < 0 or codes.max() > 63 \
            or lengths.max() > 6:  # more than 30 bits
        return None
    starts = last - lengths + 1
    shifts = 5 * (np.arange(codes.size) - np.repeat(starts, lengths))
    numbers = np.add.reduceat((codes & 31) << shifts, starts)
    numbers -= np.where(codes[last] & 16, 1 << 5 * lengths, 0)
    for first in (1, 2):
        numbers[first::2] = np.cumsum(numbers[first::2])
    return list(numbers.tolist())
