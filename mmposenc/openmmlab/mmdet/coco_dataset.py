"""COCO annotation files, with checks for errors that mmdet would train on without a message."""
from __future__ import annotations

from collections import Counter

from mmdet.datasets import CocoDataset as _CocoDataset
from mmdet.datasets.api_wrappers import COCO

from ..datasets.coco_files import Coco, has_area, read_coco
from ..datasets.image_files import refuse_broken
from ..datasets.loading import NamedErrors
from ..logs import warn


class CheckedCOCO(COCO):
    """mmdet's COCO with checks of the file.

    Attributes:
        dropped: number of annotations left out, by reason.
    """

    def __init__(self, annotation_file: str) -> None:
        super().__init__()
        self.dropped: Counter[str] = Counter()
        self.set_content(read_coco(annotation_file, self.dropped))

    def set_content(self, content: Coco) -> None:
        """Replace the images, annotations and categories."""
        self.dataset = content
        self.createIndex()
        self.img_ann_map, self.cat_img_map = self.imgToAnns, self.catToImgs


def mask_has_area(ann: Coco, image: Coco, path: str) -> bool:
    """:func:`has_area` of an annotation of an image in a file, which errors name."""
    try:
        return has_area(ann.get('segmentation'), (image['height'], image['width']))
    except ValueError as error:
        raise ValueError(f'{where_text(ann, image, path)}: {error}') from error


def where_text(ann: Coco, image: Coco, path: str) -> str:
    """Says which annotation it is."""
    return f"annotation {ann['id']} of image {image['file_name']!r} in {path}"


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
    counts them. Others name classes that no object has, and say how many boxes reach over the edge
    of their image. Objects that are ignored (``iscrowd``, or without a mask where masks are loaded)
    count as none, and a training without any other is an error. Where masks are run lengths, masks
    are loaded as bitmaps whatever ``poly2mask`` says: mmdet ignores such objects if it is False.

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

    def __init__(self, *args: object, unknown_categories: str = 'error', **kwargs: object) -> None:
        if unknown_categories not in ('error', 'drop'):
            raise ValueError(f"unknown_categories={unknown_categories!r} must be 'error' or "
                             "'drop'")
        self.unknown_categories = unknown_categories
        super().__init__(*args, **kwargs)

    def load_data_list(self) -> list[dict]:
        self.dropped: Counter[str] = Counter()
        self._crowds: Counter[int] = Counter()  # by label
        self._boxes, self._reaching_over = 0, list[str]()
        self._names: dict[int, str] | None = None
        data_list = super().load_data_list()
        dropped = ', '.join(f'{count} {what}' for what, count in self.dropped.items())
        self._refuse_or_name_unused(data_list, dropped)
        if dropped:
            warn(f'{self.ann_file}: dropped annotations: {dropped}')
        if self._reaching_over:
            warn(f'{self.ann_file}: {len(self._reaching_over)} of {self._boxes} boxes reach over '
                 'the right or lower edge of their image by more than a pixel, such as that of '
                 f'{self._reaching_over[0]}; bbox must be left, top, width and height, and no two '
                 'corners')
        self._load_run_lengths(data_list)
        if self.check_images:
            refuse_broken([info['img_path'] for info in data_list], self.ann_file,
                          [(info['width'], info['height']) for info in data_list])
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
            warn(message)
        return kept

    def parse_data_info(self, raw_data_info: dict) -> dict:
        if self._names is None:
            self._names = {cat['id']: cat['name']
                           for cat in self.coco.load_cats(self.coco.get_cat_ids())}
            self._check_class_order(self._names)
            self.dropped.update(self.coco.dropped)
        image = raw_data_info['raw_img_info']
        anns = [self._checked(ann, image) for ann in raw_data_info['raw_ann_info']]
        info = super().parse_data_info({**raw_data_info, 'raw_ann_info': anns})
        known = sum(ann['category_id'] in self.cat2label for ann in anns)
        if left_out := known - len(info['instances']):
            self.dropped['marked to be ignored, of area 0, or with a box of less than a pixel in '
                         'the image'] += left_out
        return info

    def _refuse_or_name_unused(self, data_list: list[dict], dropped: str) -> None:
        """Refuse to train without an object, and name the classes that training will not see."""
        labels = {instance['bbox_label'] for info in data_list for instance in info['instances']
                  if not instance['ignore_flag']}
        unseen = [name for label, name in enumerate(self.metainfo['classes'])
                  if label not in labels]
        crowds = sum(count for label, count in self._crowds.items() if label not in labels)
        left_out = ''.join([f'; dropped: {dropped}'] * bool(dropped) + [
            f'; {crowds} marked iscrowd=1, which training and evaluation ignore: if they are '
            'objects, set it to 0'] * bool(crowds))
        if not labels and not self.test_mode:
            raise ValueError(f'{self.ann_file} has no annotation to train on{left_out}')
        if not labels:
            warn(f'{self.ann_file} has no object to evaluate with, so there is no AP{left_out}')
        elif unseen and not self.test_mode:
            roboflow = (' (delete the category with the id 0, if it is none: Roboflow adds one)'
                        if (self._names or {}).get(0) in unseen else '')
            warn(f'{self.ann_file} has no object of {", ".join(map(repr, unseen))}; a model '
                 'trained on it will not find any' + roboflow + left_out * bool(crowds))

    def _load_run_lengths(self, data_list: list[dict]) -> None:
        """Load all masks as bitmaps if some are run lengths. With ``poly2mask=False`` mmdet would
        ignore objects with such masks."""
        for step in self.pipeline.transforms:
            if getattr(step, 'with_mask', False) and not getattr(step, 'poly2mask', True) and any(
                    isinstance(instance.get('mask'), dict) and not instance['ignore_flag']
                    for info in data_list for instance in info['instances']):
                step.poly2mask = True
                warn(f'{self.ann_file} has masks as run lengths, so masks are loaded as bitmaps '
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

    def _checked(self, ann: dict, image: dict) -> dict:
        """An annotation; it is marked as one to ignore if its mask is, as mmdet's pipeline does."""
        if ann['category_id'] not in self.cat2label:
            self._check_category(ann, image)
            return ann
        left, top, width, height = ann['bbox']
        self._boxes += 1
        if left < image['width'] and top < image['height'] and (
                left + width > image['width'] + 1 or top + height > image['height'] + 1):
            self._reaching_over.append(f'annotation {ann["id"]}')
        self._crowds[self.cat2label[ann['category_id']]] += bool(ann.get('iscrowd'))
        if any(getattr(step, 'with_mask', False) for step in self.pipeline.transforms
               ) and not mask_has_area(ann, image, self.ann_file):
            self.dropped['with a polygon of less than three corners'] += 1
            return {**ann, 'iscrowd': 1}
        return ann

    def _check_category(self, ann: dict, image: dict) -> None:
        where, category = where_text(ann, image, self.ann_file), ann['category_id']
        if category not in self._names:
            raise ValueError(f'{where}: category_id {category} is not among the categories of '
                             f'the file: {self._names}')
        if self.unknown_categories == 'error':
            raise ValueError(
                f'{where}: its category {self._names[category]!r} is not in '
                f"metainfo.classes: {list(self.metainfo['classes'])}; add it, or set "
                "unknown_categories='drop' to leave out such annotations")
        self.dropped[f'of category {self._names[category]!r}'] += 1
