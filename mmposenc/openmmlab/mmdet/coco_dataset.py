"""COCO annotation files, with checks for errors that mmdet would train on without a message."""
from __future__ import annotations

import json
import logging
from collections import Counter
from typing import Any

from mmdet.datasets import CocoDataset as _CocoDataset
from mmdet.datasets.api_wrappers import COCO
from mmengine.logging import print_log

from mmposenc.terminal.messages import printable

from ..datasets.image_files import problems_by_file
from ..datasets.loading import NamedErrors

#: The content of a file in COCO's format.
Coco = dict[str, Any]


class CheckedCOCO(COCO):
    """mmdet's COCO with checks of the file.

    Attributes:
        dropped: number of annotations left out, by reason.
    """

    def __init__(self, annotation_file: str | None = None) -> None:
        super().__init__()
        self.dropped: Counter[str] = Counter()
        if annotation_file is not None:
            self.set_content(read_coco(annotation_file, self.dropped))

    def set_content(self, content: Coco) -> None:
        """Replace the images, annotations and categories."""
        self.dataset = content
        self.createIndex()
        self.img_ann_map, self.cat_img_map = self.imgToAnns, self.catToImgs


def read_coco(path: str, dropped: Counter[str]) -> Coco:
    """Read an annotation file and check everything that training uses.

    Args:
        path: the file.
        dropped: counts annotations of images that are not in the file; they are left out.

    Raises:
        ValueError: it names the file, the entry and the error: no JSON, a missing section or key,
            an id that occurs twice or is not a whole number, a box that is not four finite numbers.
    """
    try:
        with open(path, 'rb') as file:
            data = json.load(file)
    except (ValueError, RecursionError) as error:
        raise ValueError(f'{path} is not a complete JSON file: {error}') from error
    if not isinstance(data, dict):
        raise ValueError(f'{path} holds a {type(data).__name__}; a COCO file must be a dict with '
                         'images, annotations and categories')
    for section in ('images', 'categories', 'annotations'):
        if section != 'annotations' or section in data:
            _check_section(path, data, section)
    for name, count in Counter(each['name'] for each in data['categories']).items():
        if count > 1:
            raise ValueError(f'{path}: {count} categories have the name {name!r}')
    images = {image['id'] for image in data['images']}
    annotations = []
    for ann in data.get('annotations', []):
        if ann['image_id'] not in images:
            dropped['of an image that the file does not have'] += 1
            continue
        ann.setdefault('area', max(ann['bbox'][2], 0) * max(ann['bbox'][3], 0))
        annotations.append(ann)
    data['annotations'] = annotations
    return data


#: For each section of a file, the keys that each entry must have.
_SECTIONS = {'images': ('id', 'file_name', 'height', 'width'), 'categories': ('id', 'name'),
             'annotations': ('id', 'image_id', 'category_id', 'bbox')}


def _check_section(path: str, data: Coco, section: str) -> None:
    """Raise ValueError if entries lack a key, if two have the same id, or if a value is not what
    mmdet takes it for."""
    entries = data.get(section)
    if not isinstance(entries, list):
        state = 'is missing' if section not in data else f'is a {type(entries).__name__}'
        raise ValueError(f'{path}: {section!r} {state}; it must be a list')
    if not entries and section != 'annotations':
        raise ValueError(f'{path}: {section!r} is empty')
    for i, entry in enumerate(entries):
        lacks = [key for key in _SECTIONS[section]
                 if not isinstance(entry, dict) or entry.get(key) in (None, '')]
        if lacks:
            raise ValueError(f'{path}: {section}[{i}] lacks {", ".join(lacks)}')
        for key in ('id', 'image_id', 'category_id'):
            if type(entry.get(key, 0)) is not int:
                raise ValueError(f'{path}: {section}[{i}]: {key}={entry[key]!r} must be a whole '
                                 'number')
        if entry.get('iscrowd', 0) not in (0, 1):  # Any text would count as true.
            raise ValueError(f'{path}: {section}[{i}]: iscrowd={entry["iscrowd"]!r} must be 0 or 1')
        box = entry.get('bbox', [0, 0, 0, 0])
        # NaN is not smaller than any number.
        if not isinstance(box, list) or len(box) != 4 or not all(
                isinstance(number, (int, float)) and abs(number) < 1e15 for number in box):
            raise ValueError(f'{path}: {section}[{i}]: bbox={box!r} must be four finite numbers')
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
        # pycocotools writes beyond the mask where a list of runs is too long. Text is compressed.
        covers = isinstance(counts, str) or isinstance(counts, list) and all(
            type(run) is int and run >= 0 for run in counts) and sum(counts) == size[0] * size[1]
        if not covers:
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
                         'y2, ...] or a dict with size and counts, as the pipeline loads masks; '
                         'for boxes alone take a detector without a mask head, such as '
                         'Faster R-CNN or RetinaNet') from None
    return any(len(each) % 2 == 0 and len(each) >= 6 for each in mask)


# This part of the file has the data sets.


class CocoDataset(NamedErrors, _CocoDataset):
    """mmdet's CocoDataset with checks of the annotation file and the images.

    mmdet silently drops annotations of categories that ``metainfo`` does not list, and boxes
    without area. It numbers labels in the order of the file, even if ``metainfo`` has another
    order. It finds a broken image when training reaches it, or never. Here these are errors when
    the data set is built:

    - a category or class that ``metainfo`` and the file do not share, or another order of classes;
    - a missing or broken image, or one of another size than its annotations say;
    - a box that is not finite, an id that occurs twice, a missing key, an empty list;
    - a mask that cannot be read, if the pipeline loads masks.

    Boxes without area and annotations of images that are not in the file are left out; a warning
    counts them. Another names classes that no object has. Where masks are run lengths, masks are
    loaded as bitmaps whatever ``poly2mask`` says: mmdet ignores such objects if it is False.

    Args:
        unknown_categories: 'error', or 'drop' to train on some of the file's categories; a warning
            counts the dropped annotations.
        check_images: check before training that every image file exists, is complete and has the
            size that its annotations say. It reads the beginning and the end of each file.
        **kwargs: arguments of mmdet's CocoDataset.

    Raises:
        ValueError: a check failed; it names the file and the entry.
    """

    COCOAPI = CheckedCOCO

    def __init__(self, *args: object, unknown_categories: str = 'error', check_images: bool = True,
                 **kwargs: object) -> None:
        if unknown_categories not in ('error', 'drop'):
            raise ValueError(f"unknown_categories={unknown_categories!r} must be 'error' or "
                             "'drop'")
        self.unknown_categories = unknown_categories
        self.check_images = check_images
        self.dropped: Counter[str] = Counter()
        super().__init__(*args, **kwargs)

    def load_data_list(self) -> list[dict]:
        self.dropped.clear()
        self._names: dict[int, str] | None = None
        data_list = super().load_data_list()
        dropped = ', '.join(f'{count} {what}' for what, count in self.dropped.items())
        if not self.test_mode:
            self._log_unseen_classes(data_list, dropped)
        if dropped:
            _warn(f'{self.ann_file}: dropped annotations: {dropped}')
        self._load_run_lengths(data_list)
        if self.check_images:
            self._refuse_broken_images(data_list)
        return data_list

    def filter_data(self) -> list[dict]:
        """Leave images out as mmdet does, and say how many; none left is an error."""
        kept: list[dict] = super().filter_data()
        if left_out := len(self.data_list) - len(kept):
            message = (f'{self.ann_file}: {left_out} of {len(self.data_list)} images are left out '
                       f'of training, by filter_cfg={dict(self.filter_cfg)}: they are smaller, or '
                       'have no object')
            if not kept:
                raise ValueError(f'{message}; set filter_cfg of the training data to None')
            _warn(message)
        return kept

    def parse_data_info(self, raw_data_info: dict) -> dict:
        if self._names is None:
            self._names = {cat['id']: cat['name']
                           for cat in self.coco.load_cats(self.coco.get_cat_ids())}
            self._check_class_order(self._names)
            self.dropped.update(self.coco.dropped)
        image, anns = raw_data_info['raw_img_info'], raw_data_info['raw_ann_info']
        for ann in anns:
            self._check_annotation(ann, image)
        info = super().parse_data_info(raw_data_info)
        known = sum(ann['category_id'] in self.cat2label for ann in anns)
        if left_out := known - len(info['instances']):
            self.dropped['marked to be ignored, of area 0, or with a box of less than a pixel in '
                         'the image'] += left_out
        return info

    def _log_unseen_classes(self, data_list: list[dict], dropped: str) -> None:
        """Log the classes that training will not see."""
        labels = {instance['bbox_label'] for info in data_list for instance in info['instances']}
        if not labels:
            raise ValueError(f'{self.ann_file} has no annotation to train on'
                             + (f'; dropped: {dropped}' if dropped else ''))
        classes = self.metainfo['classes']
        if unseen := [name for label, name in enumerate(classes) if label not in labels]:
            _warn(f'{self.ann_file} has no object of {", ".join(map(repr, unseen))}; a model '
                  'trained on it will not find any')

    def _load_run_lengths(self, data_list: list[dict]) -> None:
        """Load all masks as bitmaps if some are run lengths. With ``poly2mask=False`` mmdet would
        ignore objects with such masks."""
        for step in self.pipeline.transforms:
            if getattr(step, 'with_mask', False) and not getattr(step, 'poly2mask', True) and any(
                    isinstance(instance.get('mask'), dict) and not instance['ignore_flag']
                    for info in data_list for instance in info['instances']):
                step.poly2mask = True
                _warn(f'{self.ann_file} has masks as run lengths, so masks are loaded as bitmaps '
                      '(poly2mask=True)')

    def _check_class_order(self, names: dict[int, str]) -> None:
        classes = list(self.metainfo['classes'])
        missing = [name for name in classes if name not in names.values()]
        in_file = [name for name in names.values() if name in classes]
        if missing:
            raise ValueError(f'metainfo.classes: {missing} are not among the categories of '
                             f'{self.ann_file}: {list(names.values())}')
        if in_file != classes:
            raise ValueError(f'metainfo.classes: {classes} must be in the order of '
                             f'{self.ann_file}, which gives the labels: {in_file}')

    def _check_annotation(self, ann: dict, image: dict) -> None:
        if ann['category_id'] not in self.cat2label:
            self._check_category(ann, image)
        elif any(getattr(step, 'with_mask', False) for step in self.pipeline.transforms):
            try:
                if not has_area(ann.get('segmentation'), (image['height'], image['width'])):
                    self.dropped['with a polygon of less than three corners'] += 1
            except ValueError as error:
                raise ValueError(f'{self._where_text(ann, image)}: {error}') from error

    def _where_text(self, ann: dict, image: dict) -> str:
        return f"annotation {ann['id']} of image {image['file_name']!r} in {self.ann_file}"

    def _check_category(self, ann: dict, image: dict) -> None:
        where, category = self._where_text(ann, image), ann['category_id']
        if category not in self._names:
            raise ValueError(f'{where}: category_id {category} is not among the categories of '
                             f'the file: {self._names}')
        if self.unknown_categories == 'error':
            raise ValueError(
                f'{where}: its category {self._names[category]!r} is not in '
                f"metainfo.classes: {list(self.metainfo['classes'])}; add it, or set "
                "unknown_categories='drop' to leave out such annotations")
        self.dropped[f'of category {self._names[category]!r}'] += 1

    def _refuse_broken_images(self, data_list: list[dict]) -> None:
        paths = [info['img_path'] for info in data_list]
        if any('://' in path for path in paths[:1]):
            return
        problems = problems_by_file(paths, [(info['width'], info['height']) for info in data_list])
        if problems:
            shown = '\n'.join(f'  {printable(path)}: {problem}'
                              for path, problem in list(problems.items())[:20])
            raise ValueError(f'{len(problems)} of {len(paths)} images of {self.ann_file} are '
                             f'broken:\n{shown}\nRepair them, or take them out of the file '
                             '(check_images=False in the data set skips this check)')


def _warn(message: str) -> None:
    print_log(message, logger='current', level=logging.WARNING)
