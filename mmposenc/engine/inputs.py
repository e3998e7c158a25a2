"""Pictures, and noise, as a model takes them, without a data set."""
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import mmcv
import numpy as np
import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from torch import Tensor

from .models import image_channels, preprocessor_config


def check_pictures(paths: Sequence[str]) -> None:
    """Raises FileNotFoundError where a file is not there."""
    for path in paths:
        if not Path(path).is_file():
            raise FileNotFoundError(f'image: there is no file {path!r}')


def read_picture(cfg: Config, path: str) -> np.ndarray:
    """(h, w, 3) blue first, or (h, w) for a model that takes grey.

    Raises:
        ValueError: the file is no picture.
    """
    found = mmcv.imread(path, 'grayscale' if image_channels(cfg) == 1 else 'color')
    if found is None:
        raise ValueError(f'{path} can not be read as a picture')
    return found


def as_inputs(cfg: Config, pictures: Sequence[np.ndarray], size: tuple[int, int]) -> Tensor:
    """Pictures, each resized to one size and normalised as the config says.

    Args:
        cfg: whose data preprocessor.
        pictures: as :func:`read_picture` gives them.
        size: (H, W).

    Returns:
        (B, in_channels, H, W); higher and wider where the preprocessor fills images up.
    """
    tensors = []
    for picture in pictures:
        pixels = mmcv.imresize(np.ascontiguousarray(picture), size[::-1])
        tensors.append(torch.from_numpy(np.ascontiguousarray(
            pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))))
    preprocessor = MODELS.build(preprocessor_config(cfg))
    batch = preprocessor({'inputs': tensors, 'data_samples': None}, training=False)['inputs']
    return torch.stack(list(batch)) if isinstance(batch, list | tuple) else batch


def noise(cfg: Config, size: tuple[int, int], *, count: int = 1, seed: int = 0) -> Tensor:
    """(count, in_channels, H, W) of noise, the same each time."""
    return torch.randn(count, image_channels(cfg), *size,
                       generator=torch.Generator().manual_seed(seed))
