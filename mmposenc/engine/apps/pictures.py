"""Reads and writes pictures, and draws on them with the visualizers of the three libraries."""
from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from mmengine.structures import BaseDataElement
from mmengine.visualization import Visualizer

from mmposenc.checkpoint.integrity import writing_whole_file

from .image_names import name_without_suffix, take_unused_name

PICTURES = ('.bmp', '.gif', '.jpeg', '.jpg', '.png', '.tif', '.tiff', '.webp')
#: The formats of pictures that can be written.
WRITTEN = tuple(kind for kind in PICTURES if kind != '.gif')


class Source(NamedTuple):
    """A picture to predict, from a file or from memory.

    Attributes:
        path: the file.
        file: its path below the folder it was found in, with slashes; else its name.
        name: the same without the suffix, cut where it is very long, with a number where
            two files would share it.
        pixels: RGB or grey bytes, if it is in memory; None: it is read from the file.
    """

    path: Path
    file: str
    name: str
    pixels: np.ndarray | None = None


def picture_sources(path: str, *, without: Path | None = None) -> list[Source]:
    """The picture that a path names, or all below a folder, sorted by their paths.

    Hidden files and folders are skipped, and links to folders are not followed.

    Args:
        path: a file or a folder.
        without: a folder whose files are none of them, such as the one for the results.

    Raises:
        FileNotFoundError: there is no such file or folder.
        ValueError: the file is no picture, or the folder has none.
    """
    root, kinds = Path(path), ', '.join(PICTURES)
    if root.is_dir():
        paths = sorted(_visible_pictures_below(root, without))
        if not paths:
            raise ValueError(f'source={path!r}: the folder has no picture ({kinds})')
        return _sources_with_unique_names([(path, path.relative_to(root)) for path in paths])
    if not root.exists():
        raise FileNotFoundError(f'source={path!r}: there is no such file or folder')
    if root.suffix.lower() not in PICTURES:
        raise ValueError(f'source={path!r} must be a folder or a picture ({kinds})')
    return _sources_with_unique_names([(root, Path(root.name))])


def _visible_pictures_below(root: Path, without: Path | None) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        folders[:] = [name for name in folders if not name.startswith('.')
                      and (without is None or (here / name).resolve() != without.resolve())]
        for name in files:
            if not name.startswith('.') and Path(name).suffix.lower() in PICTURES:
                yield here / name


def _sources_with_unique_names(files: list[tuple[Path, Path]]) -> list[Source]:
    taken: set[str] = set()
    sources = []
    for path, relative in files:
        sources.append(Source(path, relative.as_posix(),
                              take_unused_name(name_without_suffix(relative), taken)))
    return sources


def write_picture(path: Path, pixels: np.ndarray) -> None:
    """Write a picture so that the file is complete or not there.

    Args:
        path: its suffix says the format.
        pixels: (H, W, 3) RGB bytes, or (H, W) whole numbers of 8 or 16 bits.

    Raises:
        OSError: the disk refuses it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    ordered = pixels[..., ::-1] if pixels.ndim == 3 else pixels
    done, data = cv2.imencode(path.suffix, np.ascontiguousarray(ordered))
    if not done:
        raise OSError(f'{path}: OpenCV cannot write {pixels.shape} of {pixels.dtype}')
    # Not durable, because otherwise each picture would wait for the disk.
    with writing_whole_file(path, durable=False) as partial:
        partial.write_bytes(data.tobytes())


#: Only on pictures whose shorter side has this many pixels are classes named on the areas.
LABELLED_SIDE = 256
#: A picture of a classifier is enlarged to this shorter side in pixels, so that its text can be
#: read.
TEXT_SIDE = 224


def draw_sample(scope: str, visualizer: Visualizer, name: str, image: np.ndarray,
                sample: BaseDataElement, *, truth: bool, predicted: bool, score_thr: float = 0.3,
                step: int = 0, out_file: str | None = None) -> None:
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
    options: dict[str, object] = dict(draw_gt=truth, draw_pred=predicted, out_file=out_file,
                                      step=step)
    if out_file is not None:
        Path(out_file).parent.mkdir(parents=True, exist_ok=True)
    if scope == 'mmpretrain':
        side = max(TEXT_SIDE, min(image.shape[:2])) if predicted else max(image.shape[:2])
        visualizer.visualize_cls(image, sample, classes=visualizer.dataset_meta.get('classes'),
                                 resize=side, name=name, **options)
        return
    if scope == 'mmdet':
        options['pred_score_thr'] = score_thr
    else:
        options['with_labels'] = min(image.shape[:2]) >= LABELLED_SIDE
    with warnings.catch_warnings():  # mmengine warns of every box that reaches the last column.
        warnings.filterwarnings('ignore', '.*out of bounds, the drawn')
        visualizer.add_datasample(name, image, sample, **options)


def rgb_bytes_of_loaded(image: np.ndarray) -> np.ndarray:
    """Convert a picture that a pipeline has loaded to RGB bytes. It is (H, W) grey, or (H, W,
    channels): with three or more channels the first three are BGR, with fewer the first is grey."""
    pixels = np.clip(image, 0, 255).astype(np.uint8)
    if pixels.ndim == 2 or pixels.shape[2] < 3:
        pixels = np.repeat(pixels.reshape(*pixels.shape[:2], -1)[..., :1], 3, axis=2)
    return np.ascontiguousarray(pixels[..., 2::-1])
