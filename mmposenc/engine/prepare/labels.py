"""Reads labels as tools write them (YOLO, VOC, PNG masks), without trusting them.

Nothing raises for a label: each file that can't be used is a line.
"""
from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
import yaml
from PIL import Image

from mmposenc.openmmlab.datasets.image_files import Size, size_of_file
from mmposenc.openmmlab.datasets.label_maps import map_problem, pair_problem
from mmposenc.terminal.messages import counted

from .folders import PrepareError

PICTURES = ('.bmp', '.gif', '.jpeg', '.jpg', '.png', '.tif', '.tiff', '.webp')
_LABEL_ROLES = {'annotations', 'labels', 'masks', 'segmentationclass'}
#: Names of folders that say what a file is, and not to which picture it belongs.
_ROLES = {'images', 'img', 'imgs', 'jpegimages'} | _LABEL_ROLES
#: Names of files that list the pictures of a part.
PART_LISTS = ('train.txt', 'val.txt', 'valid.txt', 'test.txt')
_NO_LABELS = {'classes.txt', 'labels.txt', *PART_LISTS}
#: The value of pixels that have no label.
VOID = 255


class LabelledObject(NamedTuple):
    """An object in a picture: its class; left, top, width and height in pixels; its outline; and
    whether evaluation ignores it."""
    name: str
    box: tuple[float, ...]
    polygon: list[float] | None = None
    crowd: bool = False


@dataclass
class Picture:
    """A picture and its labels; ``key`` is its path below the source, without the suffix and
    without folders such as 'images'."""
    key: str
    path: Path
    size: Size
    labels: Path | None = None
    things: list[LabelledObject] = field(default_factory=list)


@dataclass
class FolderContents:
    """What a folder contains; each of ``problems`` begins with the name of a file."""
    classes: list[str]
    pictures: list[Picture] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_labels(kind: str, source: Path, classes: list[str] | None = None) -> FolderContents:
    """Reads a folder of pictures and labels; changes nothing in it.

    A label file belongs to the picture of the same path and name, but for folders such as
    ``images``, ``labels`` and ``Annotations``.

    Args:
        kind: one of :data:`KINDS`.
        source: the folder.
        classes: names in the order of the labels; None: those of a data.yaml or classes.txt in the
            source, else those that occur, by the alphabet.

    Raises:
        PrepareError: no such folder, no pictures or labels in it, numbers without names, or names
            that are no list of different words.
    """
    if not source.is_dir():
        raise PrepareError(f'{source} is not a folder')
    named = [name.strip() for name in classes or _class_names_file(source)]
    if not all(named) or len({*named}) < len(named):
        raise PrepareError(f'{source}: classes {named} must be words, and no two the same')
    if not named and kind in ('yolo', 'masks'):
        raise PrepareError(f'{source}: its labels are numbers; name the classes by --classes, or '
                           'in a data.yaml or classes.txt there')
    labelled = FolderContents(named)
    pictures, labels = _files_by_key(kind, source, labelled.problems)
    if not pictures or not labels:
        where = ' in a folder annotations, labels or masks' if kind == 'masks' else ''
        raise PrepareError(f'{source} holds {len(pictures)} pictures and {len(labels)} '
                           f'{KINDS[kind]} files of labels{where}')
    labelled.problems += [f'{labels[key]}: there is no picture of this name '
                       f'({" ".join(PICTURES)})'
                       for key in labels.keys() - pictures.keys()]
    bare = 0
    for key, path in pictures.items():
        try:
            picture = Picture(key, path, size_of_file(str(path)), labels.get(key))
        except ValueError as error:
            labelled.problems.append(f'{path}: {error}')
            continue
        # In YOLO's format a picture without a file shows nothing.
        if picture.labels is None and kind != 'yolo':
            bare += 1
        elif picture.labels and (problem := _label_problem(kind, picture, named)):
            labelled.problems.append(problem)
        else:
            labelled.pictures.append(picture)
    if bare:
        labelled.notes.append(f'without labels, left out: {counted(bare, "picture")}')
    if not named:
        labelled.classes = sorted({each.name for picture in labelled.pictures
                                for each in picture.things})
    return labelled


def _class_names_file(source: Path) -> list[str]:
    for path in sorted((*source.glob('*.yaml'), *source.glob('*.yml'))):
        try:
            names = (yaml.safe_load(path.read_text('utf-8-sig')) or {}).get('names') or []
            if isinstance(names, dict):
                numbered = {int(key): name for key, name in names.items()}
                names = [numbered[number] for number in range(len(names))]
            if not isinstance(names, list) or {*map(type, names)} - {str, int, float}:
                raise TypeError(f'they are {names!r}; in YAML yes, no and null need quotes')
        except (AttributeError, TypeError, ValueError, KeyError, yaml.YAMLError) as error:
            raise PrepareError(f'{path}: names must be a list of classes, or their numbers from 0 '
                               f'on with a name each ({_reason_in_words(error)})') from error
        if names:
            return [str(name) for name in names]
    path = source / 'classes.txt'
    try:
        lines = path.read_text(encoding='utf-8-sig').splitlines() if path.is_file() else []
    except UnicodeDecodeError as error:
        raise PrepareError(f'{path} must be text in UTF-8 ({error})') from error
    return [line.strip() for line in lines if line.strip()]


def _reason_in_words(error: Exception) -> str:
    return f'lacks {error}' if isinstance(error, KeyError) else str(error) or type(error).__name__


def _files_by_key(kind: str, source: Path, problems: list[str]) -> tuple[dict[str, Path], ...]:
    """Pictures and label files by their keys; two files with the same key are a problem."""
    pictures: dict[str, Path] = {}
    labels: dict[str, Path] = {}
    for path in sorted(source.rglob('*')):
        *folders, name = path.relative_to(source).parts
        if not path.is_file() or any(part.startswith('.') for part in (*folders, name)):
            continue
        suffix, roles = path.suffix.lower(), {folder.lower() for folder in folders}
        is_map = kind == 'masks' and bool(roles & _LABEL_ROLES)
        if name.lower() in _NO_LABELS or name.lower().startswith('readme.'):
            continue
        if suffix == KINDS[kind] and (kind != 'masks' or is_map):
            among = labels
        elif suffix in PICTURES and not is_map:
            among = pictures
        else:
            continue
        folders_of_user = [folder for folder in folders if folder.lower() not in _ROLES]
        key = '/'.join([*folders_of_user, path.stem])
        if key in among:
            problems.append(f'{path}: has the name of {among[key]}, so that labels fit both')
        among.setdefault(key, path)
    return pictures, labels


def read_label_map(picture: Picture) -> np.ndarray:
    """The labels (H, W) in a PNG; for one with a palette, its indices."""
    with Image.open(str(picture.labels)) as image:
        return np.asarray(image).astype(np.uint8)


def _label_problem(kind: str, picture: Picture, classes: list[str]) -> str:
    """Read the objects of a picture. Returns what is wrong with its file of labels, '' if nothing
    is."""
    if kind == 'masks':
        pair = str(picture.path), str(picture.labels)
        return pair_problem(pair) or map_problem(pair[1], len(classes), VOID)
    assert picture.labels is not None
    where = ''
    try:
        text = picture.labels.read_bytes().decode('utf-8-sig')
        objects = _lines_of_yolo(text) if kind == 'yolo' else _elements_of_voc(text, picture.size)
        for place, described in objects:
            where = place
            thing = (_yolo_object(described, picture.size, classes) if isinstance(described, str)
                     else _voc_object(described))
            if classes and thing.name not in classes:
                raise ValueError(f'class {thing.name!r} is not among {classes}')
            picture.things.append(_clipped_or_refused(thing, picture.size))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError,
            ElementTree.ParseError) as error:
        return f'{picture.labels}{where}: {_reason_in_words(error)}'
    return ''


def _clipped_or_refused(thing: LabelledObject, size: Size) -> LabelledObject:
    """An object cut at the edges of the picture, if at most half of it lies outside."""
    left, top, width, height = thing.box
    if not all(map(math.isfinite, thing.box)) or width <= 0 or height <= 0:
        raise ValueError(f'box of width {width:g} and height {height:g} at {left:g}, {top:g}; it '
                         'must have finite numbers and an area')
    right, bottom = min(left + width, size[0]), min(top + height, size[1])
    left, top = max(left, 0), max(top, 0)
    area = max(right - left, 0) * max(bottom - top, 0)
    if area < width * height / 2 or right - left < 1 or bottom - top < 1:
        raise ValueError(f'box {", ".join(f"{each:g}" for each in thing.box)} (left, top, width, '
                         f'height) is more than half outside the picture of {size[0]}x{size[1]}, '
                         'or thinner than a pixel')
    polygon = thing.polygon and [min(max(each, 0), size[i % 2])
                                 for i, each in enumerate(thing.polygon)]
    return thing._replace(box=(left, top, right - left, bottom - top), polygon=polygon)


def _object_of_corners(name: object, numbers: list[float], outline: bool) -> LabelledObject:
    """An object with the corners x1, y1, x2, y2, ...; two corners are a box."""
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f'class {name!r} must be a word')
    if len(numbers) % 2 or len(numbers) < 4 + 2 * outline:
        raise ValueError(f'{len(numbers)} numbers are no outline: x and y of three corners or more')
    if not all(map(math.isfinite, numbers)):
        raise ValueError('holds a number that is not finite')
    xs, ys = numbers[::2], numbers[1::2]
    if not outline and (xs[0] > xs[1] or ys[0] > ys[1]):
        raise ValueError(f'corners {numbers}: the second must be right of and below the first')
    return LabelledObject(name.strip(), (min(xs), min(ys), max(xs) - min(xs), max(ys) - min(ys)),
                          numbers if outline else None)


def _lines_of_yolo(text: str) -> Iterator[tuple[str, str]]:
    """For each object its place in the file, and its line."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield f':{number}', line


def _yolo_object(line: str, size: Size, classes: list[str]) -> LabelledObject:
    """A line of YOLO: the number of a class, then centre, width and height, or an outline, as
    shares of the picture."""
    words = line.split()
    try:
        number, values = int(words[0]), [float(word) for word in words[1:]]
    except ValueError:
        raise ValueError(f'{line[:60]!r} must be the whole number of a class and then numbers, '
                         'with spaces between') from None
    if any(2 < abs(value) < math.inf for value in values):
        raise ValueError(f'{line[:60]!r} must have shares of the picture, from 0 to 1, and no '
                         'pixels')
    if not 0 <= number < len(classes):
        raise ValueError(f'class {number} is not among 0 to {len(classes) - 1}')
    scaled = [value * size[i % 2] for i, value in enumerate(values)]
    if len(values) > 5:
        return _object_of_corners(classes[number], scaled, True)
    if len(values) != 4:
        raise ValueError(f'{len(values)} numbers; centre, width and height are four, without '
                         'a score')
    x, y, width, height = scaled
    return LabelledObject(classes[number], (x - width / 2, y - height / 2, width, height))


def _elements_of_voc(text: str, size: Size) -> Iterator[tuple[str, ElementTree.Element]]:
    """For each object its place in the file, and its element."""
    # Entities can grow without end, so they are refused.
    if '<!DOCTYPE' in text or '<!ENTITY' in text:
        raise ValueError('has a DOCTYPE or entities, which are not read')
    root = ElementTree.fromstring(text)
    width, height = (float(root.findtext(f'size/{key}') or 0) for key in ('width', 'height'))
    if width and height and (width, height) != size:
        raise ValueError(f'is for a picture of {width:g}x{height:g}, '
                         f'which is {size[0]}x{size[1]}')
    for number, element in enumerate(root.iter('object'), 1):
        yield f': object {number}', element


def _voc_object(element: ElementTree.Element) -> LabelledObject:
    """A box of VOC, whose corners count pixels from 1 and include the last one."""
    corners = [float(element.findtext(f'bndbox/{key}') or 'no number') - (key[1:] == 'min')
               for key in ('xmin', 'ymin', 'xmax', 'ymax')]
    thing = _object_of_corners(element.findtext('name'), corners, False)
    return thing._replace(crowd=(element.findtext('difficult') or '').strip() == '1')


#: For each format of labels, the suffix of its files.
KINDS = {'yolo': '.txt', 'voc': '.xml', 'masks': '.png'}
