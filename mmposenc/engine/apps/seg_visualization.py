"""Pictures of predicted label maps, under the names of the images."""
from __future__ import annotations

import os.path as osp
from typing import Any

import mmcv
from mmengine.fileio import get
from mmseg.engine.hooks import SegVisualizationHook as _SegVisualizationHook

from .pictures import LABELLED_SIDE


class SegVisualizationHook(_SegVisualizationHook):
    """mmseg's hook, writing ``<test_out_dir>/<image name>.png`` when a folder is given.

    mmseg's own numbers its pictures and puts them two folders below the visualizer's save_dir.

    Args:
        test_out_dir: folder for the pictures of a test; None leaves them to the visualizer.
        with_labels: write the names of the classes onto the areas; None: only onto images of at
            least :data:`LABELLED_SIDE` pixels, smaller ones would vanish under them.
        **kwargs: to mmseg's SegVisualizationHook.
    """

    def __init__(self, *args: Any, test_out_dir: str | None = None,
                 with_labels: bool | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.test_out_dir = test_out_dir
        self.with_labels = with_labels

    def after_test_iter(self, runner: Any, batch_idx: int, data_batch: dict,
                        outputs: Any) -> None:
        if not self.draw or self.test_out_dir is None:
            super().after_test_iter(runner, batch_idx, data_batch, outputs)
            return
        for sample in outputs:
            name = osp.splitext(osp.basename(sample.img_path))[0]
            image = mmcv.imfrombytes(get(sample.img_path, backend_args=self.backend_args),
                                     channel_order='rgb')
            named = self.with_labels
            self._visualizer.add_datasample(
                name, image, data_sample=sample, show=self.show,
                with_labels=min(image.shape[:2]) >= LABELLED_SIDE if named is None else named,
                out_file=osp.join(self.test_out_dir, f'{name}.png'))
