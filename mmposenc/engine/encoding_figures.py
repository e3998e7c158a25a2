"""Figures of the encodings of a model that a config describes."""
from __future__ import annotations

from pathlib import Path

import mmcv
import numpy as np
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope
from mmengine.runner.checkpoint import _load_checkpoint_to_model
from torch import Tensor

from ..checkpoint import load_checkpoint
from ..visualization.model_figures import draw_encodings
from .browse import _preprocessor_config
from .checkpoints import mismatch
from .checks import check_checkpoint
from .testing import scope_of


def visualize_encodings(cfg: Config, checkpoint: str | None, output_dir: str | Path, *,
                        image: str | None = None, size: tuple[int, int] = (224, 224),
                        at: tuple[float, float] = (0.5, 0.5)) -> list[Path]:
    """Builds the model of a config and draws its backbone's encodings.

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
    if min(size) < 1:
        raise ValueError(f'size={size} must be at least (1, 1)')
    if image is not None and not Path(image).is_file():
        raise FileNotFoundError(f'no file {image!r}')
    if checkpoint is not None:
        check_checkpoint(checkpoint, 'checkpoint')
    init_default_scope(scope_of(cfg))
    inputs = _inputs(cfg, image, size)
    model = MODELS.build(cfg.model)
    if checkpoint is not None:
        loaded = load_checkpoint(checkpoint)
        state = loaded.get('state_dict', loaded)
        if wrong := mismatch(model.state_dict(), state):
            raise ValueError(f'{checkpoint} does not fit the model of the config:\n{wrong}')
        _load_checkpoint_to_model(model, loaded)
    return draw_encodings(model.backbone, inputs, output_dir, at=at)


def _inputs(cfg: Config, image: str | None, size: tuple[int, int]) -> Tensor:
    """(1, in_channels, H, W) as the backbone takes it; one channel is grey."""
    channels = cfg.model.backbone.get('in_channels', 3)
    if image is None:
        return torch.randn(1, channels, *size, generator=torch.Generator().manual_seed(0))
    # Whether an image needs padding to a multiple is the preprocessor's business, not labels'.
    preprocessor = MODELS.build(_preprocessor_config(cfg))
    pixels = mmcv.imread(image, 'grayscale' if channels == 1 else 'color')
    if pixels is None:
        raise ValueError(f'{image} can not be read as a picture')
    pixels = mmcv.imresize(pixels, size[::-1])
    tensor = torch.from_numpy(np.ascontiguousarray(
        pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)))
    batch: Tensor = preprocessor({'inputs': [tensor], 'data_samples': None}, training=False
                                 )['inputs']
    return batch
