"""COCO's metric on the annotations that the tested data set loaded."""
from __future__ import annotations

import contextlib
import io
import logging
import os.path as osp
from collections import Counter
from collections.abc import Sequence

from mmdet.datasets import CocoDataset as _CocoDataset
from mmdet.datasets.api_wrappers import COCO
from mmdet.evaluation import CocoMetric as _CocoMetric
from mmengine.dataset import BaseDataset
from mmengine.fileio import get_local_path
from mmengine.logging import print_log

from ..datasets.wrapped import unwrapped_datasets
from .coco_dataset import CheckedCOCO, Coco, CocoDataset


class CocoMetric(_CocoMetric):
    """mmdet's CocoMetric, whose ground truth is what the tested data set loaded.

    mmdet's reads ``ann_file`` a second time and by other rules than the data set: it stops where
    ``area`` or ``iscrowd`` is missing, never matches the annotation with the id 0, counts objects
    that the data set dropped, and compares with other images where the data set reads another file
    or has ``indices``. Here images and annotations are those of the data set. Of several data sets
    in a ConcatDataset, a metric evaluates the one whose ``ann_file`` it names, else all together.

    ``mmposenc train`` and ``mmposenc test`` use it for each ``CocoMetric`` of a config. Numbers
    equal mmdet's where both readings agree.

    Args:
        ann_file: names one of several data sets. Without one of COCO's data sets, such as in a
            script that does not call :meth:`set_ground_truth`, it is read as mmdet does.
        **kwargs: arguments of mmdet's CocoMetric.
    """

    def __init__(self, ann_file: str | None = None, *args: object, **kwargs: object) -> None:
        super().__init__(None, *args, **kwargs)
        self.ann_file = ann_file
        #: For the path of each image, its id in the ground truth. None means that every image has
        #: its own id.
        self._ids: dict[str, int] | None = None

    def set_ground_truth(self, dataset: BaseDataset) -> None:
        """Take the images and annotations of a data set as ground truth.

        Args:
            dataset: the data set that is tested, or a wrapper of several.

        Raises:
            ValueError: an image is in two of several data sets, so that its predictions belong to
                none.
        """
        parts_of = list(unwrapped_datasets(dataset))
        if not parts_of or not all(_is_coco(leaf) for leaf in parts_of):
            return
        named = [leaf for leaf in parts_of if self.ann_file
                 and osp.realpath(leaf.ann_file) == osp.realpath(self.ann_file)]
        if self.ann_file and not named:
            files = ', '.join(leaf.ann_file for leaf in parts_of)
            print_log(f'the evaluator names {self.ann_file}, but the data set reads {files}; its '
                      'annotations are the ground truth', 'current', logging.WARNING)
        chosen = named or parts_of
        parts = [_loaded_coco(leaf, by_label=len(chosen) > 1) for leaf in chosen]
        self._ids = None
        if len(parts_of) > 1:
            self._ids = _renumbered(parts)
        self._coco_api = _coco_api(parts)

    def process(self, data_batch: object, data_samples: Sequence[dict]) -> None:
        """Store the predictions of a batch as mmdet does, with the ids of the ground truth."""
        if self._coco_api is None and self.ann_file is not None:
            with get_local_path(self.ann_file, backend_args=self.backend_args) as path:
                self._coco_api = COCO(path)
        if self._ids is not None:
            data_samples = [{**sample, 'img_id': self._ids.get(sample['img_path'])}
                            for sample in data_samples]
        super().process(data_batch, data_samples)

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Evaluate as mmdet does. Predictions for the data set of another metric are left out only
        here, because several processes join their results by number."""
        return super().compute_metrics(
            [result for result in results if result[1]['img_id'] is not None])


def _is_coco(dataset: BaseDataset) -> bool:
    """Whether a data set reads COCO's format by mmdet's rules; LVIS, for example, has rules of its
    own."""
    return isinstance(dataset, _CocoDataset) and (
        isinstance(dataset, CocoDataset)
        or type(dataset).load_data_list is _CocoDataset.load_data_list)


def _loaded_coco(dataset: _CocoDataset, *, by_label: bool) -> Coco:
    """What a data set has loaded, in the form of a COCO file.

    Args:
        dataset: one that :func:`_is_coco`.
        by_label: categories are numbered by the labels of the data set, not as in its file.

    Returns:
        images with their paths as ``img_path``, annotations numbered from 1, and categories.
    """
    with get_local_path(dataset.ann_file, backend_args=dataset.backend_args) as path:
        api = CheckedCOCO(path)
    images: list[Coco] = []
    annotations: list[Coco] = []
    for index in range(len(dataset)):
        info = dataset.get_data_info(index)
        image = {**api.load_imgs([info['img_id']])[0], 'img_id': info['img_id']}
        images.append({**image, 'img_path': info['img_path']})
        for ann in api.load_anns(api.get_ann_ids(img_ids=[info['img_id']])):
            # mmdet's own rules say whether an annotation is used; its checks were made when it was
            # loaded.
            parsed = _CocoDataset.parse_data_info(
                dataset, {'raw_img_info': image, 'raw_ann_info': [ann]})
            if parsed['instances']:
                annotations.append({'iscrowd': 0, **ann, 'id': len(annotations) + 1})
    categories = [each for each in api.dataset['categories'] if each['id'] in dataset.cat2label]
    if by_label:
        categories = [{**each, 'id': dataset.cat2label[each['id']]} for each in categories]
        for ann in annotations:
            ann['category_id'] = dataset.cat2label[ann['category_id']]
    return {'images': images, 'annotations': annotations, 'categories': categories}


def _renumbered(parts: Sequence[Coco]) -> dict[str, int]:
    """Number the images and annotations of several data sets so that no id occurs twice.

    Returns:
        for each image's path its new id; that of the file where there is one data set.
    """
    ids: dict[str, int] = {}
    paths = Counter(image['img_path'] for part in parts for image in part['images'])
    if twice := [path for path, count in paths.items() if count > 1]:
        raise ValueError(f'{twice[0]} is in two data sets of one evaluator; evaluate each by a '
                         'CocoMetric with its ann_file, or test them one after another')
    annotations = 0
    for part in parts:
        new = {image['id']: len(ids) + i if len(parts) > 1 else image['id']
               for i, image in enumerate(part['images'])}
        for image in part['images']:
            image['id'] = ids[image['img_path']] = new[image['id']]
        for ann in part['annotations']:
            annotations += 1
            ann['id'], ann['image_id'] = annotations, new[ann['image_id']]
    return ids


def _coco_api(parts: Sequence[Coco]) -> CheckedCOCO:
    """The images and annotations of several data sets as an object with the interface of mmdet's
    COCO."""
    api = CheckedCOCO()
    api.dataset = {'images': [each for part in parts for each in part['images']],
                   'annotations': [each for part in parts for each in part['annotations']],
                   'categories': parts[0]['categories']}
    with contextlib.redirect_stdout(io.StringIO()):
        api.createIndex()
    api.img_ann_map, api.cat_img_map = api.imgToAnns, api.catToImgs
    return api
