"""Images for trackers: predictions on the first validation images, and the model's encodings."""
from __future__ import annotations

import logging
import tempfile
from typing import Any

import mmcv
import numpy as np
import torch
from mmengine.dist import is_main_process
from mmengine.fileio import exists, get
from mmengine.hooks import Hook
from torch import Tensor, nn

from mmposenc.engine.apps.browse import denormalized
from mmposenc.engine.apps.pictures import draw
from mmposenc.engine.training.processes import plain_model

from .encoding_figures import pass_of
from .model_figures import draw_encodings


class TrackerHook(Hook):
    """Sends images to the visualizer's backends in every validation, and closes them at the end.

    What is trained does not change: everything is computed in evaluation mode, from no random
    number.

    Args:
        images: how many validation images are sent, the first ones, with labels and predictions.
        encodings_interval: figures of the encodings, for the first validation image, are sent in
            every so many-th validation; 0 for never. They are up to two a layer.
    """

    ends_after_errors = True  # the runner calls its after_run then too
    priority = 'LOW'

    def __init__(self, images: int = 4, encodings_interval: int = 1) -> None:
        for name, value in (('images', images), ('encodings_interval', encodings_interval)):
            if value < 0:
                raise ValueError(f'{name}={value} must be at least 0')
        self.images, self.encodings_interval = images, encodings_interval
        self._sent = self._validations = 0

    def before_val_epoch(self, runner: Any) -> None:
        self._sent = 0
        self._validations += 1

    def after_val_iter(self, runner: Any, batch_idx: int, data_batch: Any = None,
                       outputs: Any = None) -> None:
        first = batch_idx == 0 and self.encodings_interval and (
            self._validations - 1) % self.encodings_interval == 0
        if not is_main_process() or not (first or self._sent < self.images):
            return
        model = plain_model(runner.model)
        with torch.no_grad():
            inputs = model.data_preprocessor(data_batch, False)['inputs']
        for i, sample in enumerate(outputs[:self.images - self._sent]):
            self._sent += 1
            pixels, name = _pixels(sample, inputs[i], model.data_preprocessor)
            draw(runner.cfg.default_scope, runner.visualizer, f'predictions/{name or self._sent}',
                 pixels, sample.cpu(), truth=True, predicted=True, step=runner.iter)
        if first:
            self._send_encodings(runner, model, inputs[:1])

    def _send_encodings(self, runner: Any, model: nn.Module, inputs: Tensor) -> None:
        drawn, run = pass_of(model, inputs)
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            try:
                written = draw_encodings(drawn, inputs, folder, run=run,
                                         source=f'iteration {runner.iter}')
            except ValueError as error:  # there is no attention of this project in it
                runner.logger.log(logging.INFO, f'no figures of encodings: {error}')
                self.encodings_interval = 0
                return
            for path in written:
                if path.suffix == '.png':
                    runner.visualizer.add_image(
                        f'encodings/{path.stem}',
                        np.ascontiguousarray(mmcv.imread(str(path), channel_order='rgb')),
                        step=runner.iter)

    def after_run(self, runner: Any) -> None:
        if is_main_process():
            runner.visualizer.close()


def _pixels(sample: Any, image: Tensor, preprocessor: Any) -> tuple[np.ndarray, str]:
    """The picture a sample is of, as its file has it where it has one, and the file's name."""
    path = str(sample.get('img_path') or '')
    if path and exists(path):
        return (mmcv.imfrombytes(get(path), channel_order='rgb'),
                path.rpartition('/')[2].rpartition('.')[0])
    return denormalized(image, preprocessor), ''

