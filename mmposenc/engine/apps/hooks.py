"""Hooks of a test that write a file for each image, with the name and in the folder of the image.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest.mock import patch

import mmcv
from mmengine.dist import barrier, is_main_process
from mmengine.fileio import get
from mmengine.hooks import Hook
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement

from ...config_types import ReadOnlyConfig
from ...writing import check_new_files, writing_picture
from .pictures import draw_sample, label_map, names_without_suffix, rgb_bytes_of_loaded


class _ImageNamesHook(Hook):
    """A base class of hooks that need the names of the images in the test data.

    Args:
        out_dir: the folder for the files.
        data: folders of data by keys of the config; nothing is written there.
    """

    option = ''

    def __init__(self, out_dir: str, data: Mapping[str, str] | None = None) -> None:
        self.out_dir, self.data = out_dir, data

    def suffix(self, path: str) -> str:
        """The ending of the file for an image."""
        return '.png'

    def before_test_epoch(self, runner: Runner) -> None:
        """Give each image of the test data a name: its path, or its number if it is in no file.

        Raises:
            ValueError: a file or a link of the user's has one of the names.
        """
        dataset = runner.test_dataloader.dataset
        paths = dict.fromkeys(dataset.get_data_info(number).get('img_path') or str(number)
                              for number in range(len(dataset)))
        self.files = {path: name + self.suffix(path) for path, name in zip(
            paths, names_without_suffix([*paths]), strict=True)}
        if is_main_process():
            check_new_files(self.out_dir, self.files.values(), self.option, data=self.data)
        barrier()  # Until here, no process has written anything.


class LabelMapsHook(_ImageNamesHook):
    """Write the label map of each image of a test as ``<out_dir>/<folder>/<image name>.png``.

    mmseg's IoUMetric writes images of one name in several folders over each other. Labels are those
    of the classes from 0 on, as in the maps of ``mmposenc predict``.
    """

    option = '--out'

    def after_test_iter(self, runner: Runner, batch_idx: int, data_batch: object = None,
                        outputs: Sequence[BaseDataElement] = ()) -> None:
        """Write the label maps of a batch."""
        for sample in outputs:
            with writing_picture(Path(self.out_dir, self.files[sample.img_path])) as partial:
                mmcv.imwrite(label_map(sample), str(partial))


class VisualizationHook(_ImageNamesHook):
    """Draws the truth and the prediction of each image of a test as ``<out_dir>/<folder>/<image
    name>``, as a PNG where the image is one, else as a JPEG.

    The hooks of mmdet and mmpretrain write images of one name in several folders over each other,
    and mmseg's numbers its pictures. mmpretrain's also takes BGR for RGB, and fails under test-time
    augmentation.

    Args:
        out_dir, data: as of the base class.
        scope: 'mmdet', 'mmseg' or 'mmpretrain', whose visualizer draws.
        score_thr: boxes must score more.
        backend_args: how files are read, as mmengine's ``fileio.get`` takes it.
    """

    option = '--show-dir'

    def __init__(self, out_dir: str, scope: str, score_thr: float = 0.3,
                 backend_args: ReadOnlyConfig | None = None,
                 data: Mapping[str, str] | None = None) -> None:
        super().__init__(out_dir, data)
        self.scope, self.score_thr, self.backend_args = scope, score_thr, backend_args

    def suffix(self, path: str) -> str:
        return '.png' if path.lower().endswith('.png') else '.jpg'

    def after_test_iter(self, runner: Runner, batch_idx: int, data_batch: object = None,
                        outputs: Sequence[BaseDataElement] = ()) -> None:
        """Draw the images of a batch."""
        loader = runner.test_dataloader
        for number, sample in enumerate(outputs, batch_idx * (loader.batch_size or 1)):
            path = sample.get('img_path')
            if path:
                pixels = mmcv.imfrombytes(get(path, backend_args=self.backend_args),
                                          channel_order='rgb')
            else:  # Data sets that hold their images in memory hold them as RGB.
                number = sample.get('sample_idx', number)
                image = loader.dataset.get_data_info(number)['img']
                pixels = rgb_bytes_of_loaded(image)[..., ::-1].copy()
            # Visualizers do nothing in other processes than the first, which has other images.
            file = Path(self.out_dir, self.files[path or str(number)])
            with (writing_picture(file) as partial,
                  patch('mmengine.dist.utils.is_main_process', return_value=True)):
                runner.visualizer.dataset_meta = getattr(loader.dataset, 'metainfo', None)
                draw_sample(self.scope, runner.visualizer, pixels, sample, truth=True,
                            predicted=True, score_thr=self.score_thr, out_file=str(partial))
