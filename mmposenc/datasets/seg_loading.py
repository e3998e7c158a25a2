"""Reading label maps."""
from __future__ import annotations

import os.path as osp

from mmseg.datasets.transforms import LoadAnnotations

from .image_files import check_file
from .label_maps import label_problem


class LoadSegAnnotations(LoadAnnotations):
    """mmseg's LoadAnnotations (same arguments), refusing label maps that do not fit.

    What a map is held to comes from :class:`~mmposenc.datasets.SegDataset`; with another data
    set only its size is checked.

    Raises:
        ValueError: names the file: its size is not its image's, it has several channels, or it
            holds labels outside the classes.
    """

    def _load_seg_map(self, results: dict) -> None:
        if osp.exists(results['seg_map_path']):  # not of another storage
            check_file(results['seg_map_path'])
        super()._load_seg_map(results)
        labels, path = results['gt_seg_map'], results['seg_map_path']
        if labels.ndim != 2:
            raise ValueError(f'{path} has shape {labels.shape}; one channel of 8 bits is required')
        size = results.get('ori_shape')
        if size is not None and labels.shape != tuple(size[:2]):
            raise ValueError(f'{path} is {labels.shape[1]}x{labels.shape[0]}, but its image '
                             f'{results.get("img_path")} is {size[1]}x{size[0]}')
        num_classes = results.get('num_classes')
        if num_classes is None:
            return
        problem = label_problem(labels, num_classes, results.get('ignore_index', 255))
        if problem:
            zero = ' (after reduce_zero_label)' if results.get('reduce_zero_label') else ''
            raise ValueError(f'{path} {problem}{zero}')
