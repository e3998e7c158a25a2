"""Labels and predictions drawn onto images by the visualizers of the three libraries."""
from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from mmengine.visualization import BaseVisBackend

#: Shorter side in pixels from which on pictures name their classes on the areas.
LABELLED_SIDE = 256
#: Shorter side in pixels that a classified picture is given, so that its text can be read.
TEXT_SIDE = 224


def draw(scope: str, visualizer: Any, name: str, image: np.ndarray, sample: Any, *, truth: bool,
         predicted: bool, score_thr: float = 0.3, step: int = 0,
         out_file: str | None = None) -> None:
    """Draws one sample; the picture goes to a file, else to the visualizer's backends.

    Args:
        scope: 'mmdet', 'mmseg' or 'mmpretrain'.
        visualizer: of that library, with its dataset_meta.
        name: of the picture in the backends.
        image: (H, W, 3) RGB bytes.
        sample: what the model or the data set gave.
        truth, predicted: which of its labels are drawn.
        score_thr: of boxes.
        step: of the training.
        out_file: where the picture goes.
    """
    options: dict[str, Any] = dict(draw_gt=truth, draw_pred=predicted, out_file=out_file, step=step)
    if scope == 'mmpretrain':
        side = max(TEXT_SIDE, min(image.shape[:2])) if predicted else max(image.shape[:2])
        visualizer.visualize_cls(image, sample, classes=visualizer.dataset_meta.get('classes'),
                                 resize=side, name=name, **options)
        return
    if scope == 'mmdet':
        options['pred_score_thr'] = score_thr
    else:
        options['with_labels'] = min(image.shape[:2]) >= LABELLED_SIDE
    with warnings.catch_warnings():  # of every box that reaches the last column
        warnings.filterwarnings('ignore', '.*out of bounds, the drawn')
        visualizer.add_datasample(name, image, sample, **options)


def rgb_bytes(image: np.ndarray) -> np.ndarray:
    """RGB bytes of a picture as a pipeline loads it: (H, W), (H, W, 1) or BGR (H, W, 3)."""
    pixels = np.clip(image, 0, 255).astype(np.uint8)
    if pixels.ndim == 2 or pixels.shape[2] == 1:
        pixels = np.repeat(pixels.reshape(*pixels.shape[:2], 1), 3, axis=2)
    return np.ascontiguousarray(pixels[..., 2::-1])


class KeepPicture(BaseVisBackend):
    """A backend that keeps the last picture in memory."""

    def __init__(self) -> None:
        super().__init__(save_dir='')
        self.picture: np.ndarray | None = None

    @property
    def experiment(self) -> KeepPicture:
        """Itself."""
        return self

    def _init_env(self) -> None:
        """There is nothing to open."""

    def add_image(self, name: str, image: np.ndarray, step: int = 0, **kwargs: Any) -> None:
        """Keeps it."""
        self.picture = image
