"""Pictures of predicted classes, under the names and folders of the images."""
from __future__ import annotations

from pathlib import Path
from typing import Any

from mmpretrain.engine.hooks import VisualizationHook

from .image_names import image_names
from .pictures import draw, rgb_bytes


class ClsVisualizationHook(VisualizationHook):
    """mmpretrain's hook, which in a test writes ``<out_dir>/<folder>/<image name>.png``.

    mmpretrain's own takes BGR for RGB, writes images of one name in several folders over each
    other, and fails under test-time augmentation, of which this one draws the first view.
    """

    def before_test_epoch(self, runner: Any) -> None:
        """Give each image of the test data its name."""
        if self.enable and self.out_dir is not None:
            self.names = image_names(runner.test_dataloader.dataset)
            self.by_path = dict(self.names)

    def after_test_iter(self, runner: Any, batch_idx: int, data_batch: dict,
                        outputs: Any) -> None:
        """Draws every ``interval``-th image, as the model takes it."""
        if not self.enable or self.out_dir is None:
            super().after_test_iter(runner, batch_idx, data_batch, outputs)
            return
        first = batch_idx * (runner.test_dataloader.batch_size or 1)
        images = data_batch['inputs']
        if images[0].ndim == 4:  # a batch for every view
            images = images[0]
        for i, (image, sample) in enumerate(zip(images, outputs, strict=True)):
            number = sample.get('sample_idx', first + i)
            if number % self.interval:
                continue
            path, pixels = sample.get('img_path'), rgb_bytes(image.permute(1, 2, 0).cpu().numpy())
            if path is None:  # data sets that hold their images hold them as RGB
                pixels = pixels[..., ::-1].copy()
            name = self.by_path[path] if path else self.names[number][1]
            out = Path(self.out_dir, f'{name}.png')
            draw('mmpretrain', self._visualizer, out.stem, pixels, sample, truth=True,
                 predicted=True, out_file=str(out))

