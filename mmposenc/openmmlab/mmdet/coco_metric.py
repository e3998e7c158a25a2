"""COCO's metric on the annotations that the tested data set loaded."""
from __future__ import annotations

import os.path as osp
from collections.abc import Sequence

from mmdet.datasets import CocoDataset as _CocoDataset
from mmdet.datasets.api_wrappers import COCO
from mmdet.evaluation import CocoMetric as _CocoMetric
from mmengine.dataset import BaseDataset
from mmengine.fileio import get_local_path

from ..datasets.coco_files import is_outline
from ..logs import warn
from .coco_dataset import CheckedCOCO, CocoDataset, mask_has_area


class CocoMetric(_CocoMetric):
    """mmdet's CocoMetric, whose ground truth is what the tested data set loaded.

    mmdet's reads ``ann_file`` a second time and by other rules than the data set: it stops where
    ``area`` or ``iscrowd`` is missing, never matches the annotation with the id 0, counts objects
    that the data set dropped, and compares with other images where the data set reads another file
    or has ``indices``. Here images and annotations are those of the data set.

    ``mmposenc train`` and ``mmposenc test`` use it for each ``CocoMetric`` of a config. Numbers
    equal mmdet's where both readings agree.

    Args:
        ann_file: the ground truth of a script that does not call :meth:`set_ground_truth`: read
            as the data set reads it, and of the images that have predictions.
        **kwargs: arguments of mmdet's CocoMetric.
    """

    def __init__(self, ann_file: str | None = None, *args: object, **kwargs: object) -> None:
        super().__init__(None, *args, **kwargs)
        self.ann_file, self.in_a_script = ann_file, False

    def set_ground_truth(self, dataset: BaseDataset) -> None:
        """Take the images and annotations of a data set as ground truth.

        Args:
            dataset: the data set that is tested, or a wrapper of it. If it is none of COCO's,
                ``ann_file`` is the ground truth, read as mmdet does.

        Raises:
            ValueError: it joins several data sets, whose images may have the same ids; or an object
                has no mask, and masks are evaluated.
        """
        while hasattr(dataset, 'dataset'):
            dataset = dataset.dataset
        joined = getattr(dataset, 'datasets', [dataset])
        if len(joined) > 1:
            raise ValueError(f'the tested data set is a {type(dataset).__name__} of {len(joined)} '
                             'data sets, in which two images may have one id; CocoMetric '
                             'evaluates one data set, so test each by itself')
        dataset = joined[0]
        if not _is_coco(dataset):
            if self.ann_file is not None:
                with get_local_path(self.ann_file, backend_args=self.backend_args) as path:
                    self._coco_api = COCO(path)
            return
        if self.ann_file and osp.realpath(dataset.ann_file) != osp.realpath(self.ann_file):
            warn(f'the evaluator names {self.ann_file}, but the data set reads '
                 f'{dataset.ann_file}; its annotations are the ground truth')
        self._coco_api = _loaded_coco(dataset, masks='segm' in self.metrics)

    def process(self, data_batch: object, data_samples: Sequence[dict]) -> None:
        """Store the predictions of a batch as mmdet does."""
        if self._coco_api is None and self.ann_file is not None:
            self.set_ground_truth(CocoDataset(
                ann_file=self.ann_file, data_prefix=dict(img=''), metainfo=self.dataset_meta,
                test_mode=True, unknown_categories='drop', check_images=False,
                backend_args=self.backend_args))
            self.in_a_script = True
        super().process(data_batch, data_samples)

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Compute the metrics as mmdet does; without any prediction there are none."""
        if self.in_a_script:
            self.img_ids = [prediction['img_id'] for _, prediction in results]
        metrics: dict[str, float] = super().compute_metrics(results)
        if not metrics and not any(len(prediction['labels']) for _, prediction in results):
            has_objects = self._coco_api is None or not all(
                ann['iscrowd'] for ann in self._coco_api.anns.values())
            warn(f'no AP: nothing was found in the {len(results)} images' + (
                '. After a short training all scores are often below model.test_cfg.score_thr; '
                'train longer, or look at them by mmposenc predict --score-thr 0' if has_objects
                else ', which have no object but those marked iscrowd=1'))
        return metrics


def _is_coco(dataset: BaseDataset) -> bool:
    """Whether a data set reads COCO's format by mmdet's rules; LVIS, for example, has rules of its
    own."""
    return isinstance(dataset, _CocoDataset) and (
        isinstance(dataset, CocoDataset)
        or type(dataset).load_data_list is _CocoDataset.load_data_list)


def _loaded_coco(dataset: _CocoDataset, *, masks: bool) -> CheckedCOCO:
    """What a data set of :func:`_is_coco` has loaded, with annotations numbered from 1. If
    ``masks`` are evaluated, objects whose polygons are too small for one are left out."""
    with get_local_path(dataset.ann_file, backend_args=dataset.backend_args) as path:
        api = CheckedCOCO(path)
    images: list[dict] = []
    annotations: list[dict] = []
    for index in range(len(dataset)):
        img_id = dataset.get_data_info(index)['img_id']
        image = {**api.load_imgs([img_id])[0], 'img_id': img_id}
        images.append(image)
        for ann in api.load_anns(api.get_ann_ids(img_ids=[img_id])):
            # mmdet's own rules say whether an annotation is used; its checks were made when it was
            # loaded.
            parsed = _CocoDataset.parse_data_info(
                dataset, {'raw_img_info': image, 'raw_ann_info': [ann]})
            if not parsed['instances'] or masks and not mask_has_area(ann, image, dataset.ann_file):
                continue
            outlines = ann.get('segmentation')
            if masks and isinstance(outlines, list):  # pycocotools takes four numbers for a box.
                ann = {**ann, 'segmentation': [*filter(is_outline, outlines)]}
            annotations.append({'iscrowd': 0, **ann, 'id': len(annotations) + 1})
    categories = [each for each in api.dataset['categories'] if each['id'] in dataset.cat2label]
    api.set_content({'images': images, 'annotations': annotations, 'categories': categories})
    return api
