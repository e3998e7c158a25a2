"""Pictures of predicted boxes, under the names and folders of the images."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import mmcv
from mmdet.engine.hooks import DetVisualizationHook as _DetVisualizationHook
from mmengine.fileio import get

from .image_names import image_names
from .pictures import WRITTEN, draw


class DetVisualizationHook(_DetVisualizationHook):
    """mmdet's hook, which in a test writes ``<test_out_dir>/<folder>/<image name>``.

    mmdet's own writes images of one name in several folders over each other.
    """

    def before_test_epoch(self, runner: Any) -> None:
        """Give each image of the test data its name."""
        if self.draw and self.test_out_dir is not None:
            self.names = dict(image_names(runner.test_dataloader.dataset))

    def after_test_iter(self, runner: Any, batch_idx: int, data_batch: dict,
                        outputs: Any) -> None:
        """Draw the truth and the prediction of each image."""
        if not self.draw or self.test_out_dir is None:
            super().after_test_iter(runner, batch_idx, data_batch, outputs)
            return
        for sample in outputs:
            path = sample.img_path
            suffix = Path(path).suffix
            out = Path(self.test_out_dir, self.names[path]
                       + (suffix if suffix.lower() in WRITTEN else '.png'))
            image = mmcv.imfrombytes(get(path, backend_args=self.backend_args),
                                     channel_order='rgb')
            draw('mmdet', self._visualizer, out.name, image, sample, truth=True, predicted=True,
                 score_thr=self.score_thr, out_file=str(out))
