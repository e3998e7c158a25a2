"""Hooks of a test that write a file for each image, with the name and in the folder of the image.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mmcv
import numpy as np
from mmengine.fileio import get
from mmengine.hooks import Hook
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement

from ...config_types import ReadOnlyConfig
from .image_names import paths_and_names
from .pictures import WRITTEN, draw_sample, rgb_bytes_of_loaded, write_picture


class _ImageNamesHook(Hook):
    """A base class of hooks that need the names of the images in the test data.

    Args:
        out_dir: the folder for the files.
    """

    def __init__(self, out_dir: str) -> None:
        self.out_dir = out_dir

    def before_test_epoch(self, runner: Runner) -> None:
        """Give each image of the test data a name."""
        self.images = paths_and_names(runner.test_dataloader.dataset)
        self.names = dict(self.images)


class LabelMapsHook(_ImageNamesHook):
    """Write the label map of each image of a test as ``<out_dir>/<folder>/<image name>.png``.

    mmseg's IoUMetric writes images of one name in several folders over each other. Labels are those
    of the classes from 0 on, as in the maps of ``mmposenc predict``.
    """

    def after_test_iter(self, runner: Runner, batch_idx: int, data_batch: object = None,
                        outputs: Sequence[BaseDataElement] = ()) -> None:
        """Write the label maps of a batch."""
        for sample in outputs:
            labels = sample.pred_sem_seg.data[0].cpu().numpy()
            dtype = np.uint8 if labels.max(initial=0) < 256 else np.uint16
            write_picture(Path(self.out_dir, f'{self.names[sample.img_path]}.png'),
                          labels.astype(dtype))


class VisualizationHook(_ImageNamesHook):
    """Draws the truth and the prediction of each image of a test into ``<out_dir>/<folder>``.

    The hooks of mmdet and mmpretrain write images of one name in several folders over each other,
    and mmseg's numbers its pictures. mmpretrain's also takes BGR for RGB, and fails under test-time
    augmentation, of which this one draws the first view.

    Args:
        out_dir: the folder. A picture has the ending of its image, or '.png'.
        scope: 'mmdet', 'mmseg' or 'mmpretrain', whose visualizer draws. A classified image is drawn
            as the model takes it, others as they are in their files.
        score_thr: boxes must score more.
        backend_args: of the files, as mmengine's ``fileio.get`` takes them.
    """

    def __init__(self, out_dir: str, scope: str, score_thr: float = 0.3,
                 backend_args: ReadOnlyConfig | None = None) -> None:
        super().__init__(out_dir)
        self.scope, self.score_thr, self.backend_args = scope, score_thr, backend_args

    def after_test_iter(self, runner: Runner, batch_idx: int,
                        data_batch: Mapping[str, Any] | None = None,
                        outputs: Sequence[BaseDataElement] = ()) -> None:
        """Draw the images of a batch."""
        first = batch_idx * (runner.test_dataloader.batch_size or 1)
        for index, sample in enumerate(outputs):
            path = sample.get('img_path')
            if self.scope == 'mmpretrain':
                assert data_batch is not None
                views = data_batch['inputs']
                image = (views[0] if views[0].ndim == 4 else views)[index]
                pixels = rgb_bytes_of_loaded(image.permute(1, 2, 0).cpu().numpy())
                if path is None:  # Data sets that hold their images in memory hold them as RGB.
                    pixels = pixels[..., ::-1].copy()
            else:
                pixels = mmcv.imfrombytes(get(path, backend_args=self.backend_args),
                                          channel_order='rgb')
            name = (self.names[path] if path
                    else self.images[sample.get('sample_idx', first + index)][1])
            suffix = Path(path or '').suffix
            suffix = suffix if suffix.lower() in WRITTEN else '.png'
            draw_sample(self.scope, runner.visualizer, Path(name).name, pixels, sample, truth=True,
                        predicted=True, score_thr=self.score_thr,
                        out_file=str(Path(self.out_dir, f'{name}{suffix}')))
