"""A COCO annotation file, refused when something in it would train on nothing or on wrong boxes."""
from __future__ import annotations

import contextlib
import io
import json
from collections import Counter
from typing import Any

import numpy as np
from mmdet.datasets.api_wrappers import COCO

from .image_files import check_file


class CheckedCOCO(COCO):
    """mmdet's COCO, read in silence and checked first.

    Attributes:
        dropped: how many annotations of which kind were left out.
    """

    def __init__(self, annotation_file: str | None = None) -> None:
        super().__init__()
        self.dropped: Counter[str] = Counter()
        if annotation_file is None:
            return
        self.dataset = read_coco(annotation_file, self.dropped)
        with contextlib.redirect_stdout(io.StringIO()):
            self.createIndex()
        self.img_ann_map, self.cat_img_map = self.imgToAnns, self.catToImgs


def read_coco(path: str, dropped: Counter[str]) -> dict[str, Any]:
    """Reads an annotation file and checks everything that training takes from it.

    Args:
        path: the file.
        dropped: annotations of images that the file does not have are left out and counted here.

    Raises:
        ValueError: names the file, the entry and what is wrong with it: no JSON, a section or a key
            that is missing, ids that occur twice or are of another type, boxes that are not four
            finite numbers.
    """
    try:
        check_file(path)
        with open(path, 'rb') as file:
            data = json.load(file)
    except (ValueError, RecursionError) as error:
        raise ValueError(f'{path} is no whole JSON file: {error}') from error
    if not isinstance(data, dict):
        raise ValueError(f'{path} holds a {type(data).__name__}; a COCO file is a dict with '
                         'images, annotations and categories')
    for section in ('images', 'categories', 'annotations'):
        if section != 'annotations' or section in data:
            _check_section(path, data, section)
    _check_categories(path, data['categories'])
    _check_images(path, data['images'])
    images = {image['id'] for image in data['images']}
    kept = []
    for ann in data.get('annotations', []):
        _check_id(path, 'annotation', ann, 'image_id')
        if ann['image_id'] in images:
            _check_annotation(path, ann)
            kept.append(ann)
        else:
            dropped['of an image that the file does not have'] += 1
    data['annotations'] = kept
    return data


#: Section, name of an entry, keys that it must have.
_ENTRIES = {'images': ('image', ('id', 'file_name', 'height', 'width')),
            'categories': ('category', ('id', 'name')),
            'annotations': ('annotation', ('id', 'image_id', 'category_id', 'bbox'))}


def _check_section(path: str, data: dict, section: str) -> None:
    what, keys = _ENTRIES[section]
    entries = data.get(section)
    if not isinstance(entries, list):
        found = 'is missing' if section not in data else f'is a {type(entries).__name__}'
        raise ValueError(f'{path}: {section!r} {found}; it must be a list')
    if not entries and section != 'annotations':
        raise ValueError(f'{path}: {section!r} is empty')
    seen: set[Any] = set()
    for i, entry in enumerate(entries):
        lacks = [key for key in keys if not isinstance(entry, dict) or key not in entry]
        if lacks:
            raise ValueError(f'{path}: {section}[{i}] lacks {", ".join(lacks)}')
        _check_id(path, what, entry, 'id')
        if entry['id'] in seen:
            raise ValueError(f'{path}: two entries of {section!r} have the id {entry["id"]}')
        seen.add(entry['id'])


def _check_id(path: str, what: str, entry: dict, key: str) -> None:
    if type(entry[key]) is not int or abs(entry[key]) >= 2 ** 63:
        raise ValueError(f'{path}: {what} {entry["id"]!r}: {key}={entry[key]!r} must be a whole '
                         'number of at most 64 bits')


def _check_categories(path: str, categories: list[dict]) -> None:
    for category in categories:
        if not isinstance(category['name'], str) or not category['name']:
            raise ValueError(f'{path}: category {category["id"]}: name={category["name"]!r} must '
                             'be a word')
    for name, count in Counter(category['name'] for category in categories).items():
        if count > 1:
            raise ValueError(f'{path}: {count} categories have the name {name!r}')


def _check_images(path: str, images: list[dict]) -> None:
    for image in images:
        if not isinstance(image['file_name'], str) or not image['file_name']:
            raise ValueError(f'{path}: image {image["id"]}: file_name={image["file_name"]!r} must '
                             'be the name of a file')
        for key in ('height', 'width'):
            if not _is_number(image[key]) or image[key] < 1 or image[key] % 1:
                raise ValueError(f'{path}: image {image["id"]}: {key}={image[key]!r} must be a '
                                 'whole number of at least 1')


def _check_annotation(path: str, ann: dict) -> None:
    where = f'{path}: annotation {ann["id"]}'
    _check_id(path, 'annotation', ann, 'category_id')
    box = ann['bbox']
    if not isinstance(box, list) or len(box) != 4 or not all(map(_is_number, box)):
        raise ValueError(f'{where}: bbox={box!r} must be four finite numbers')
    if ann.get('iscrowd', 0) not in (0, 1):
        raise ValueError(f'{where}: iscrowd={ann["iscrowd"]!r} must be 0 or 1')
    area = ann.setdefault('area', max(box[2], 0) * max(box[3], 0))
    if not _is_number(area):
        raise ValueError(f'{where}: area={area!r} must be a finite number')


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e15  # not of NaN


def has_area(mask: Any, size: tuple[int, int]) -> bool:
    """Whether a segmentation is a mask that mmdet takes: of polygons too small it makes none.

    Args:
        mask: polygons, or a dict of run lengths, as COCO has them.
        size: (height, width) of the image.

    Raises:
        ValueError: it is neither, or not of this image.
    """
    if isinstance(mask, dict):
        counts, pixels = mask.get('counts'), size[0] * size[1]
        if mask.get('size') != [*size]:
            raise ValueError(f"segmentation: size={mask.get('size')!r} must be the image's, "
                             f'{[*size]}')
        # pycocotools leaves pixels that no run covers as they were in memory.
        try:
            runs = np.asarray(counts) if isinstance(counts, list) else _runs(counts)
            whole = (runs.dtype.kind == 'i' and runs.min() >= 0 and runs.max() <= pixels
                     and runs.sum() == pixels)
        except (TypeError, ValueError, AttributeError):
            whole = False
        if not whole:
            raise ValueError(f'segmentation: counts={str(counts)[:40]!r} must be the lengths of '
                             f'runs that cover {size[0]}x{size[1]} pixels')
        return True
    try:
        if not mask or not all(isinstance(each, list) and max(each, default=0) < 1e9
                               and min(each, default=0) > -1e9 and sum(each) == sum(each)
                               for each in mask):
            raise TypeError
    except TypeError:
        raise ValueError(f'segmentation={str(mask)[:60]} must be a list of polygons [x1, y1, x2, '
                         'y2, ...] or a dict with size and counts: the pipeline loads masks'
                         ) from None
    return any(len(each) % 2 == 0 and len(each) >= 6 for each in mask)


def _runs(text: str) -> np.ndarray:
    """Lengths of runs out of COCO's compressed form: five bits a letter, and from the fourth number
    on the difference to the number before the last."""
    letters = np.frombuffer(text.encode('ascii'), np.uint8).astype(np.int64) - 48
    ends = np.flatnonzero(letters & 32 == 0)
    if not len(ends) or ends[-1] != len(letters) - 1 or letters.min() < 0 or letters.max() > 63:
        raise ValueError
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if lengths.max() > 7:
        raise ValueError
    shifts = 5 * (np.arange(len(letters)) - np.repeat(starts, lengths))
    numbers = np.add.reduceat((letters & 31) << shifts, starts)
    numbers -= (letters[ends] & 16 != 0).astype(np.int64) << 5 * lengths
    for first in (1, 2):
        numbers[first::2] = numbers[first::2].cumsum()
    return numbers
