"""Predicted label maps as files, under the names of the images."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from mmengine.hooks import Hook

from .image_names import image_names
from .pictures import write_picture


class LabelMapsHook(Hook):
    """Writes the label map of each image of a test as ``<out_dir>/<folder>/<image name>.png``.

    As in the files of mmseg's IoUMetric, which writes images of one name in several folders over
    each other, labels begin at 1 where the data set has ``reduce_zero_label=True``.

    Args:
        out_dir: the folder.
    """

    def __init__(self, out_dir: str) -> None:
        self.out_dir = out_dir

    def before_test_epoch(self, runner: Any) -> None:
        """Give each image of the test data its name."""
        self.names = dict(image_names(runner.test_dataloader.dataset))

    def after_test_iter(self, runner: Any, batch_idx: int, data_batch: Any = None,
                        outputs: Any = None) -> None:
        """Write the maps of a batch."""
        for sample in outputs:
            labels = sample.pred_sem_seg.data[0].cpu().numpy()
            labels = labels + bool(sample.get('reduce_zero_label', False))
            kind = np.uint8 if labels.max(initial=0) < 256 else np.uint16
            write_picture(Path(self.out_dir, f'{self.names[sample.img_path]}.png'),
                          labels.astype(kind))
