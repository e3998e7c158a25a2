"""Reads labels as tools write them (YOLO, VOC, COCO, PNG masks), without trusting them.

Nothing raises for a label: each file that can't be used is a line.
"""
from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
from PIL import Image

from mmposenc.openmmlab.datasets.coco_files import PART_OF_NAME
from mmposenc.openmmlab.datasets.image_files import PICTURES, Size, files_below, size_of_file
from mmposenc.openmmlab.datasets.label_maps import map_problem, pair_problem
from mmposenc.terminal.messages import counted

from .folders import PrepareError
from .names import VOID, Colour, reason_in_words

_LABEL_ROLES = {'annotations', 'labels', 'masks', 'segmentationclass'}
#: Names of folders that say what a file is, and not to which picture it belongs.
_ROLES = {'images', 'img', 'imgs', 'jpegimages'} | _LABEL_ROLES
#: Names of files that list the pictures of a part.
PART_LISTS = {f'{name}.txt' for name in PART_OF_NAME}
_NO_LABELS = {'classes.txt', 'labels.txt', *PART_LISTS}


class LabelledObject(NamedTuple):
    """An object in a picture: its class; left, top, width and height in pixels; its outlines, or
    a mask of COCO's; whether training and evaluation ignore it; and its area, if not the box's."""
    name: str
    box: tuple[float, ...]
    segmentation: Any = None
    crowd: bool = False
    area: float | None = None


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


def read_labels(kind: str, source: Path, named: list[str],
                colours: dict[Colour, int] | None = None, lists: Collection[str] = ()
                ) -> FolderContents:
    """Reads a folder of pictures and labels; changes nothing in it.

    A label file belongs to the picture of the same path and name, but for folders such as
    ``images``, ``labels`` and ``Annotations``.

    Args:
        kind: one of :data:`KINDS`, but not 'coco'.
        source: the folder.
        named: names in the order of the labels; empty: those that occur, by the alphabet.
        colours: the label of each colour, for masks in colours.
        lists: names of .txt files that are none of labels.

    Raises:
        PrepareError: no pictures or labels in it.
    """
    labelled = FolderContents(named)
    pictures, labels = _files_by_key(kind, source, {*lists, *_NO_LABELS}, labelled.problems)
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
        elif picture.labels and (problem := _label_problem(kind, picture, named, colours)):
            labelled.problems.append(problem)
        else:
            labelled.pictures.append(picture)
    if bare:
        labelled.notes.append(f'without labels, left out: {counted(bare, "picture")}')
    if not named:
        labelled.classes = sorted({each.name for picture in labelled.pictures
                                for each in picture.things})
    by_letters: dict[str, str] = {}
    for name in labelled.classes:
        if (other := by_letters.setdefault(name.lower(), name)) != name:
            labelled.notes.append(f'warning: {other!r} and {name!r} are two classes; if they are '
                                  'one, give them one spelling')
    return labelled


def _files_by_key(kind: str, source: Path, no_labels: set[str], problems: list[str]
                  ) -> tuple[dict[str, Path], ...]:
    """Pictures and label files by their keys; two files with the same key are a problem."""
    pictures: dict[str, Path] = {}
    labels: dict[str, Path] = {}
    for path in map(Path, files_below(source)):
        *folders, name = path.relative_to(source).parts
        suffix, roles = path.suffix.lower(), {folder.lower() for folder in folders}
        is_map = kind == 'masks' and bool(roles & _LABEL_ROLES)
        if name.lower() in no_labels or name.lower().startswith('readme.'):
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


def read_label_map(picture: Picture, colours: dict[Colour, int] | None = None) -> np.ndarray:
    """The labels (H, W) in a PNG; for one with a palette, its indices. With ``colours`` they are
    the labels of its colours.

    Raises:
        ValueError: a colour has no label.
    """
    with Image.open(str(picture.labels)) as image:
        if colours is None:
            return np.asarray(image).astype(np.uint8)
        pixels = np.asarray(image.convert('RGB'))
    codes, places = np.unique(pixels @ [1 << 16, 1 << 8, 1], return_inverse=True)
    found = [(int(code) >> 16, int(code) >> 8 & 255, int(code) & 255) for code in codes]
    if lacking := [colour for colour in found if colour not in colours]:
        raise ValueError(f'{len(lacking)} of its colours, such as {lacking[0]}, are not in the '
                         'table of --colours')
    labels = np.array([colours[colour] for colour in found], np.uint8)
    return labels[places.reshape(pixels.shape[:2])]


def _label_problem(kind: str, picture: Picture, classes: list[str],
                   colours: dict[Colour, int] | None) -> str:
    """Read the objects of a picture. Returns what is wrong with its file of labels, '' if nothing
    is."""
    pair, where = (str(picture.path), str(picture.labels)), ''
    if kind == 'masks' and colours is None:
        return pair_problem(pair) or map_problem(pair[1], len(classes), VOID)
    assert picture.labels is not None
    try:
        if kind == 'masks':
            if (size := read_label_map(picture, colours).shape[::-1]) != picture.size:
                raise ValueError(f'its size is {size}, but {pair[0]} has {picture.size}')
            return ''
        text = _decoded(picture.labels.read_bytes(), kind)
        lines = [(f':{i}', line) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
        objects = lines if kind == 'yolo' else _elements_of_voc(text, picture.size)
        for place, described in objects:
            where = place
            thing = (_yolo_object(described, picture.size, classes) if isinstance(described, str)
                     else _voc_object(described))
            if classes and thing.name not in classes:
                raise ValueError(f'class {thing.name!r} is not among {classes}')
            picture.things.append(cut_at_edges(thing, picture.size))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OSError,
            ElementTree.ParseError) as error:
        return f'{picture.labels}{where}: {reason_in_words(error)}'
    return ''


def _decoded(content: bytes, kind: str) -> str:
    """Text in UTF-8, or in the encoding that an XML file declares."""
    if kind == 'voc' and content[:2] in (b'\xff\xfe', b'\xfe\xff'):
        return content.decode('utf-16')
    declared = re.match(rb'(?:\xef\xbb\xbf)?\s*<\?xml[^>]*encoding=["\']([\w.:-]+)', content)
    name = declared[1].decode().lower() if kind == 'voc' and declared else 'utf-8'
    return content.decode('utf-8-sig' if name in ('utf-8', 'utf8') else name)


def cut_at_edges(thing: LabelledObject, size: Size) -> LabelledObject:
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
    outlines = thing.segmentation
    if isinstance(outlines, list):
        outlines = [[min(max(number, 0), size[i % 2]) for i, number in enumerate(each)]
                    for each in outlines]
    return thing._replace(box=(left, top, right - left, bottom - top), segmentation=outlines)


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
                          [numbers] if outline else None)


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
KINDS = {'yolo': '.txt', 'voc': '.xml', 'coco': '.json', 'masks': '.png'}
