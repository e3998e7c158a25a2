"""Finds pictures, names what is written for them, and draws on them with the visualizers of the
three libraries."""
from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path

import numpy as np
from mmengine.registry import VISUALIZERS
from mmengine.structures import BaseDataElement
from mmengine.visualization import Visualizer

from mmposenc.openmmlab.datasets.image_files import PICTURES, files_below

from ...config_types import ReadOnlyConfig
from ...writing import folded
from ..config.testing import VISUALIZERS_OF


def picture_files(path: str | Path) -> list[str]:
    """The picture that a path names, or all below a folder, sorted. What is hidden is skipped.

    Raises:
        FileNotFoundError: there is no such file or folder.
        ValueError: the file is no picture, or the folder has none.
    """
    path, kinds = str(path), ', '.join(PICTURES)
    if os.path.isdir(path):
        found = [each for each in files_below(path) if each.lower().endswith(PICTURES)]
        if not found:
            raise ValueError(f'source={path!r}: the folder has no picture ({kinds})')
        return found
    if not os.path.exists(path):
        raise FileNotFoundError(f'source={path!r}: there is no such file or folder')
    if not os.path.isfile(path) or not path.lower().endswith(PICTURES):
        raise ValueError(f'source={path!r} must be a folder or a picture ({kinds})')
    return [path]


def names_without_suffix(paths: Sequence[str], root: str | Path | None = None) -> list[str]:
    """A name for what is written for each image of a list, such as its picture or its label map.

    Args:
        paths: the paths of the images.
        root: the folder that has them; None: the deepest folder that has all of them.

    Returns:
        The path of each image below that folder, with slashes and without its suffix. Where two
        would share a name, as some file systems tell names, the later one gets a number.
    """
    files = [os.path.abspath(path) for path in paths]
    if root is None and files:
        root = os.path.commonpath([os.path.dirname(file) for file in files])
    names: dict[str, str] = {}
    for file in files:
        first = Path(os.path.relpath(file, root)).with_suffix('').as_posix()
        name = next(name for name in chain([first], (f'{first}_{number}' for number in count(2)))
                    if folded(name) not in names)
        names[folded(name)] = name
    return list(names.values())


def visualizer_of(scope: str, dataset_meta: ReadOnlyConfig) -> Visualizer:
    """The visualizer of a library, 'mmdet', 'mmseg' or 'mmpretrain', without backends.

    Args:
        scope: which library.
        dataset_meta: the classes and, if it has any, the palette.
    """
    with VISUALIZERS.switch_scope_and_registry(scope) as registry:
        chosen = registry.get(VISUALIZERS_OF[scope])
    # Not built by the registry, which would give it to whoever asks for the newest one.
    visualizer = chosen(name='mmposenc')
    visualizer.dataset_meta = dataset_meta
    return visualizer


#: Only on pictures whose shorter side has this many pixels are classes named on the areas.
LABELLED_SIDE = 256
#: A picture of a classifier is enlarged to this shorter side in pixels, so that its text can be
#: read.
TEXT_SIDE = 224


def draw_sample(scope: str, visualizer: Visualizer, image: np.ndarray, sample: BaseDataElement, *,
                truth: bool, predicted: bool, score_thr: float = 0.3,
                out_file: str | None = None) -> None:
    """Draws one sample; the picture goes to a file, else to the visualizer's backends.

    Args:
        scope: 'mmdet', 'mmseg' or 'mmpretrain'.
        visualizer: the visualizer of that library, with its dataset_meta.
        image: (H, W, 3) RGB bytes.
        sample: what the model or the data set gave.
        truth, predicted: which of its labels are drawn.
        score_thr: the lowest score of boxes that are drawn.
        out_file: where the picture goes.
    """
    options: dict[str, object] = dict(draw_gt=truth, draw_pred=predicted, out_file=out_file)
    if scope == 'mmpretrain':
        side = max(TEXT_SIDE, min(image.shape[:2])) if predicted else max(image.shape[:2])
        visualizer.visualize_cls(image, sample, resize=side, **options)
        return
    if scope == 'mmdet':
        options['pred_score_thr'] = score_thr
    else:
        options['with_labels'] = min(image.shape[:2]) >= LABELLED_SIDE
    with warnings.catch_warnings():  # mmengine warns of every box that reaches the last column.
        warnings.filterwarnings('ignore', '.*out of bounds, the drawn')
        visualizer.add_datasample('', image, sample, **options)


def rgb_bytes_of_loaded(image: np.ndarray) -> np.ndarray:
    """Convert a picture that a pipeline has loaded to RGB bytes. It is (H, W) grey, or (H, W,
    channels): with three or more channels the first three are BGR, with fewer the first is grey."""
    pixels = np.clip(image, 0, 255).astype(np.uint8)
    if pixels.ndim == 2 or pixels.shape[2] < 3:
        pixels = np.repeat(pixels.reshape(*pixels.shape[:2], -1)[..., :1], 3, axis=2)
    return np.ascontiguousarray(pixels[..., 2::-1])


def label_map(sample: BaseDataElement) -> np.ndarray:
    """The predicted label of each pixel (H, W): bytes, or 16 bits where a label needs them."""
    labels: np.ndarray = sample.pred_sem_seg.data[0].cpu().numpy()
    return labels.astype(np.uint8 if labels.max(initial=0) < 256 else np.uint16)
