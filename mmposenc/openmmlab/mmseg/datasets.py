"""mmseg's data sets of label maps and their loading, with checks."""
from __future__ import annotations

import os.path as osp

from mmseg.datasets import ADE20KDataset as _ADE20KDataset
from mmseg.datasets import BaseSegDataset
from mmseg.datasets.transforms import LoadAnnotations

from ..datasets.image_files import SAMPLES
from ..datasets.label_maps import check_pairs, unknown_labels_text
from ..datasets.loading import NamedErrors
from ..logs import warn


class LoadSegAnnotations(LoadAnnotations):
    """mmseg's LoadAnnotations (same arguments), which refuses label maps that do not fit.

    :class:`mmposenc.SegDataset` gives it the classes; with another data set only the size is
    checked.

    Raises:
        ValueError: a map has another size than its image, several channels, or labels outside the
            classes; it names the file.
    """

    def _load_seg_map(self, results: dict) -> None:
        super()._load_seg_map(results)
        labels, path = results['gt_seg_map'], results['seg_map_path']
        if labels.ndim != 2:
            raise ValueError(f'{path} has shape {labels.shape}; one channel of 8 bits is required')
        size = results.get('ori_shape')
        if size is not None and labels.shape != tuple(size[:2]):
            raise ValueError(f'{path} is {labels.shape[1]}x{labels.shape[0]}, but its image '
                             f'{results.get("img_path")} is {size[1]}x{size[0]}')
        num_classes = results.get('num_classes')
        if num_classes is not None and (problem := unknown_labels_text(
                labels, num_classes, results.get('ignore_index', 255))):
            zero = ' (after reduce_zero_label)' if results.get('reduce_zero_label') else ''
            raise ValueError(f'{path} {problem}{zero}')


class SegDataset(NamedErrors, BaseSegDataset):
    """mmseg's BaseSegDataset with checks of the files.

    mmseg finds a missing label map when training reaches it, ignores a label outside the classes or
    stops with an index error, and resizes a map of another size along with its image. ``classes``
    and ``palette`` come from ``metainfo``. Use it with
    :class:`~mmposenc.openmmlab.mmseg.LoadSegAnnotations`, which checks every map that it reads.

    Args:
        img_suffix: the end of the names of images, or several of which each occurs in the
            folder of a data set without ``ann_file``.
        check_images: check before training that every image has a label map of its size with one
            channel of 8 bits, and that a sample of the maps has only labels of the classes. Only
            the sample is read completely.
        **kwargs: arguments of mmseg's data set.

    Raises:
        ValueError: there is no image, or files do not fit; it names them.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        if not self.METAINFO.get('classes'):  # Tools of mmseg read the names of classes there.
            self.METAINFO = self.metainfo

    def load_data_list(self) -> list[dict]:
        data_list: list[dict] = []
        # mmseg accepts only one suffix, and cuts as many letters off each name.
        suffixes = self.img_suffix
        for self.img_suffix in (suffixes,) if isinstance(suffixes, str) else suffixes:
            data_list += super().load_data_list()
        self.img_suffix = suffixes
        if not isinstance(suffixes, str):
            data_list.sort(key=lambda info: info['img_path'])
        if not data_list:
            raise ValueError(self._no_images_text())
        classes = self._metainfo.get('classes')
        for info in data_list:  # LoadSegAnnotations checks the map with this number.
            info['num_classes'] = classes and len(classes)
            info['ignore_index'] = self.ignore_index
        pairs = [(info['img_path'], info['seg_map_path']) for info in data_list
                 if 'seg_map_path' in info]
        if self.check_images and pairs and '://' not in pairs[0][0]:
            # Files hold all labels of METAINFO, as they are before reduce_zero_label.
            names = self.METAINFO.get('classes') or classes
            num_labels = len(names) + self.reduce_zero_label if names else None
            labels = check_pairs(pairs, num_labels, self.ignore_index)
            if classes and not self.test_mode:
                self._warn_of_unseen_classes(labels, len(pairs))
        return data_list

    def _warn_of_unseen_classes(self, labels: set[int], num_maps: int) -> None:
        """Warn of classes that no label map has."""
        offset, classes = int(self.reduce_zero_label), self._metainfo['classes']
        read = {label - offset for label in labels if label >= offset}
        seen = {(self.label_map or {}).get(label, label) for label in read} - {self.ignore_index}
        unseen = [name for i, name in enumerate(classes) if i not in seen]
        where = 'no label map' if num_maps <= SAMPLES else f'none of {SAMPLES} label maps'
        if unseen and (num_maps <= SAMPLES or len(seen) < 2):
            warn(f'{where} of {self.data_prefix.get("seg_map_path")} has pixels of '
                 f'{", ".join(map(repr, unseen))} (pixels of the value {self.ignore_index} '
                 'are ignored' + (', and so is 0: reduce_zero_label=True)' if offset else ')'))

    def _no_images_text(self) -> str:
        folder = self.data_prefix.get('img_path')
        where = f'{self.ann_file} lists no image' if self.ann_file else (
            f'there is no image *{self.img_suffix} in {osp.abspath(str(folder))}')
        return f'{where} (img_suffix={self.img_suffix!r}, data_prefix.img_path={folder!r})'


class ADE20KDataset(SegDataset, _ADE20KDataset):
    """mmseg's ADE20KDataset with the checks of :class:`SegDataset`."""
