"""COCO-style data sets that say what is wrong with them."""
from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from mmdet.datasets import CocoDataset as _CocoDataset
from mmengine.logging import print_log

from .coco_file import CheckedCOCO, has_area
from .image_files import broken_files
from .named_errors import NamedErrors


class CocoDataset(NamedErrors, _CocoDataset):
    """mmdet's CocoDataset with its silent losses reported.

    mmdet drops annotations of categories that ``metainfo`` does not list, and boxes without
    area; it numbers labels in the order of the file, whatever the order of ``metainfo``; and a
    broken image is found when training reaches it, or never. Here the first and the last two are
    errors, raised when the data set is built, and dropped boxes are counted in a warning. So are
    annotations of images that the file does not have; boxes that are not finite, ids that occur
    twice, missing keys and empty lists are errors (:mod:`.coco_file`), and so are an image of
    another size than its annotations say and, where the pipeline loads masks, one that can't be.

    Args:
        unknown_categories: 'error', or 'drop' to train on some of the file's categories on
            purpose; what is dropped is counted in a warning.
        check_images: look, before training starts, whether every image file is there, whole and
            of the size that its annotations say. It reads both ends of each file.
        skip_broken_images: leave out images that are missing or broken, and say which and how
            many; False makes them an error. In validation, their boxes still count as missed.
        **kwargs: to mmdet's CocoDataset.

    Raises:
        ValueError: for an unknown category (named, with an annotation that has it), for classes
            that the file does not have or has in another order, for broken images.
    """

    COCOAPI = CheckedCOCO

    def __init__(self, *args: Any, unknown_categories: str = 'error', check_images: bool = True,
                 skip_broken_images: bool = False, **kwargs: Any) -> None:
        if unknown_categories not in ('error', 'drop'):
            raise ValueError(f"unknown_categories={unknown_categories!r} must be 'error' or "
                             "'drop'")
        self.unknown_categories = unknown_categories
        self.check_images = check_images or skip_broken_images
        self.skip_broken_images = skip_broken_images
        self.dropped: Counter[str] = Counter()
        super().__init__(*args, **kwargs)

    def load_data_list(self) -> list[dict]:
        self.dropped.clear()
        self._names: dict[int, str] | None = None
        data_list = super().load_data_list()
        if not self.test_mode and not any(info['instances'] for info in data_list):
            dropped = ', '.join(f'{count} {what}' for what, count in self.dropped.items())
            raise ValueError(f'{self.ann_file} has no annotation to train on'
                             + (f'; dropped: {dropped}' if dropped else ''))
        if self.dropped:
            counts = ', '.join(f'{count} {what}' for what, count in self.dropped.items())
            _warn(f'{self.ann_file}: dropped annotations: {counts}')
        if self.check_images:
            data_list = self._without_broken_images(data_list)
        return data_list

    def parse_data_info(self, raw_data_info: dict) -> dict:
        if self._names is None:
            self._names = {cat['id']: cat['name']
                           for cat in self.coco.load_cats(self.coco.get_cat_ids())}
            self._check_classes(self._names)
            self.dropped.update(self.coco.dropped)
        image = raw_data_info['raw_img_info']
        for ann in raw_data_info['raw_ann_info']:
            self._check_annotation(ann, image)
        return super().parse_data_info(raw_data_info)

    def _check_classes(self, names: dict[int, str]) -> None:
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
        category = ann['category_id']
        left, top, width, height = ann['bbox']
        if category not in self.cat2label:
            self._check_category(ann, image)
        elif ann.get('ignore'):
            self.dropped['marked to be ignored'] += 1
        elif width <= 0 or height <= 0:
            self.dropped['with a box of zero area'] += 1
        elif width < 1 or height < 1 or ann['area'] <= 0:
            self.dropped['with a box thinner than a pixel'] += 1
        elif (left >= image['width'] or top >= image['height'] or left + width <= 0
                or top + height <= 0):
            self.dropped['with a box outside the image'] += 1
        elif any(getattr(step, 'with_mask', False) for step in self.pipeline.transforms):
            try:
                if not has_area(ann.get('segmentation'), (image['height'], image['width'])):
                    self.dropped['with a polygon of less than three corners'] += 1
            except ValueError as error:
                raise ValueError(f'{self._where(ann, image)}: {error}') from error

    def _where(self, ann: dict, image: dict) -> str:
        return f"annotation {ann['id']} of image {image['file_name']!r} in {self.ann_file}"

    def _check_category(self, ann: dict, image: dict) -> None:
        where, category = self._where(ann, image), ann['category_id']
        if category not in self._names:
            raise ValueError(f'{where}: category_id {category} is not among the categories of '
                             f'the file: {self._names}')
        if self.unknown_categories == 'error':
            raise ValueError(
                f'{where}: its category {self._names[category]!r} is not in '
                f"metainfo.classes: {list(self.metainfo['classes'])}; add it, or set "
                "unknown_categories='drop' to leave out such annotations")
        self.dropped[f'of category {self._names[category]!r}'] += 1

    def _without_broken_images(self, data_list: list[dict]) -> list[dict]:
        paths = [info['img_path'] for info in data_list]
        if any('://' in path for path in paths[:1]):
            return data_list
        problems = broken_files(paths, [(info['width'], info['height']) for info in data_list])
        if not problems:
            return data_list
        shown = '\n'.join(f'  {path}: {problem}' for path, problem in list(problems.items())[:20])
        count = f'{len(problems)} of {len(paths)} images of {self.ann_file} are broken'
        if not self.skip_broken_images:
            raise ValueError(f'{count}:\n{shown}\nRepair them, or set skip_broken_images=True in '
                             'the data set to leave them out')
        _warn(f'{count} and skipped:\n{shown}')
        return [info for info in data_list if info['img_path'] not in problems]


def _warn(message: str) -> None:
    print_log(message, logger='current', level=logging.WARNING)
