"""Figures of the encodings of a model that a config describes."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mmcv
import numpy as np
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor, nn

from ..visualization import save_figure
from ..visualization.figures import checked_path
from ..visualization.model_figures import draw_encodings
from ..visualization.paper_figures import Choice, Subject, draw_figure
from .checks import check_checkpoint, check_folder
from .models import (
    build_model,
    image_channels,
    image_samples,
    load_weights,
    preprocessor_config,
)
from .testing import scope_of


def visualize_encodings(cfg: Config, checkpoint: str | None, output_dir: str | Path, *,
                        image: str | None = None, size: tuple[int, int] = (224, 224),
                        at: tuple[float, float] = (0.5, 0.5)) -> list[Path]:
    """Builds the model of a config and draws its encodings.

    Args:
        cfg: a config of mmdet, mmseg or mmpretrain.
        checkpoint: weights of the whole model; None leaves them random.
        output_dir: where the figures go; see :func:`mmposenc.visualization.draw_encodings`.
        image: a picture, resized to ``size`` and normalised as the config says; None is noise.
        size: (H, W) of the input.
        at: where the query lies, as fractions of height and width.

    Returns:
        The files written.

    Raises:
        ValueError: a checkpoint that does not fit, a model without attention of this project, or a
            size below 1.
        FileNotFoundError: no such image or checkpoint.
    """
    _check_input(image, size)
    model, inputs, run = _build(cfg, checkpoint, image, size)
    return draw_encodings(model, inputs, output_dir, at=at, run=run,
                          source=_source(cfg, checkpoint))


def visualize_figure(name: str, sources: Sequence[tuple[Config, str | None]], out: str | Path, *,
                     choice: Choice, image: str | None = None,
                     size: tuple[int, int] = (224, 224), save_arrays: str | Path | None = None
                     ) -> list[Path]:
    """Draws one figure of the papers, see :data:`mmposenc.visualization.paper_figures.FIGURES`.

    Args:
        name: of the figure.
        sources: configs, each with a checkpoint or None for random weights.
        out: the file; its suffix says the format.
        choice: which part of the model.
        image, size: as :func:`visualize_encodings`, the same for all models.
        save_arrays: an .npz file for the numbers that the figure shows.

    Returns:
        The files written.

    Raises:
        ValueError: as :func:`visualize_encodings`; a suffix that is no format; what the figure
            refuses.
        FileNotFoundError: no such image or checkpoint.
    """
    _check_input(image, size)
    path = checked_path(out, '--out')
    arrays = None if save_arrays is None else checked_path(save_arrays, '--save-arrays', ('.npz',))
    check_folder(str(path.parent), '--out')
    if arrays is not None:
        check_folder(str(arrays.parent), '--save-arrays')
    subjects = []
    for cfg, checkpoint in sources:
        model, _, run = _build(cfg, checkpoint, image, size)
        subjects.append(Subject(model, run, _source(cfg, checkpoint)))
    drawing = draw_figure(name, subjects, choice)
    written = [save_figure(drawing.figure, path, dpi=160)]
    if arrays is not None:
        arrays.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(arrays, **drawing.arrays)
        written.append(arrays)
    return written


def _source(cfg: Config, checkpoint: str | None) -> str:
    """The files a model is from, for titles."""
    file = Path(cfg.filename).name if cfg.filename else 'config'
    return f'{file}, {"untrained" if checkpoint is None else Path(checkpoint).name}'


def _check_input(image: str | None, size: tuple[int, int]) -> None:
    if min(size) < 1:
        raise ValueError(f'size={size} must be at least (1, 1)')
    if image is not None and not Path(image).is_file():
        raise FileNotFoundError(f'no file {image!r}')


def _build(cfg: Config, checkpoint: str | None, image: str | None, size: tuple[int, int]
           ) -> tuple[nn.Module, Tensor, Callable[[], object]]:
    """What figures are drawn of: a backbone or a whole DETR, its input, and a pass."""
    if checkpoint is not None:
        check_checkpoint(checkpoint, 'checkpoint')
    init_default_scope(scope_of(cfg))
    inputs = _inputs(cfg, image, size)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # an untrained model is the same each time
        model: Any = build_model(cfg)
    if checkpoint is not None:
        load_weights(model, checkpoint)
    drawn, run = pass_of(model, inputs)
    return drawn, inputs, run


def pass_of(model: Any, inputs: Tensor) -> tuple[nn.Module, Callable[[], object]]:
    """What of a model figures are drawn of, its backbone or all of a DETR, and a pass of it."""
    if isinstance(getattr(model, 'encoder', None), nn.Module):
        return model, lambda: model(inputs, image_samples(inputs), mode='tensor')
    return model.backbone, lambda: model.backbone(inputs)


def _inputs(cfg: Config, image: str | None, size: tuple[int, int]) -> Tensor:
    """(1, in_channels, H, W) as the backbone takes it; one channel is grey."""
    channels = image_channels(cfg)
    if image is None:
        return torch.randn(1, channels, *size, generator=torch.Generator().manual_seed(0))
    # Whether an image needs padding to a multiple is the preprocessor's business, not labels'.
    preprocessor = MODELS.build(preprocessor_config(cfg))
    pixels = mmcv.imread(image, 'grayscale' if channels == 1 else 'color')
    if pixels is None:
        raise ValueError(f'{image} can not be read as a picture')
    pixels = mmcv.imresize(pixels, size[::-1])
    tensor = torch.from_numpy(np.ascontiguousarray(
        pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)))
    batch: Tensor = preprocessor({'inputs': [tensor], 'data_samples': None}, training=False
                                 )['inputs']
    return batch
