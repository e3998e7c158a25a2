"""Pictures of predicted label maps, under the names of the images."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import mmcv
from mmengine.fileio import get
from mmseg.engine.hooks import SegVisualizationHook as _SegVisualizationHook

from .image_names import image_names
from .pictures import draw


class SegVisualizationHook(_SegVisualizationHook):
    """mmseg's hook, which in a test writes ``<test_out_dir>/<folder>/<image name>.png``.

    mmseg's own numbers its pictures and puts them two folders below the visualizer's save_dir.

    Args:
        test_out_dir: folder for the pictures of a test; None leaves them to the visualizer.
        **kwargs: to mmseg's SegVisualizationHook.
    """

    def __init__(self, *args: Any, test_out_dir: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.test_out_dir = test_out_dir

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
            name = self.names[sample.img_path]
            image = mmcv.imfrombytes(get(sample.img_path, backend_args=self.backend_args),
                                     channel_order='rgb')
            draw('mmseg', self._visualizer, name, image, sample, truth=True, predicted=True,
                 out_file=str(Path(self.test_out_dir, f'{name}.png')))
