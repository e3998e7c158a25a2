"""The model of a config as figures take it: weights, one image, and a pass."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mmcv
import numpy as np
from mmengine.config import Config
from mmengine.registry import init_default_scope
from torch import Tensor, nn

from mmposenc.engine.config.checks import check_checkpoint
from mmposenc.engine.config.models import (
    as_inputs,
    build_bare,
    check_pictures,
    image_samples,
    load_weights,
    noise,
    read_picture,
)
from mmposenc.engine.config.nodes import usual_size
from mmposenc.engine.config.testing import scope_of

from .paper_figures import Subject

#: Longer side of a photo as figures draw it, in pixels.
_DRAWN = 800


def build_subject(cfg: Config, checkpoint: str | None, image: str | None,
                  size: Sequence[int] | None, *, whole: bool = False) -> tuple[Subject, Tensor]:
    """What figures are drawn of: a backbone or a whole DETR with its image, and its input.

    Args:
        cfg: a config of mmdet, mmseg or mmpretrain.
        checkpoint: weights of the whole model; None leaves them random, the same each time.
        image: a picture, resized and normalised as the config says; None is noise.
        size: (H, W) of the input; one number is the shorter side, and the longer one follows the
            picture, both rounded to multiples of :func:`cell_side`; None is
            :func:`.config_sizes.usual_size`, of a picture as many whole cells as fit into it.
        whole: refuse a picture that is no whole number of cells, on which they would not lie where
            they are drawn.

    Raises:
        ValueError: a size below 1 or refused, a checkpoint that does not fit, or no picture.
        FileNotFoundError: no such image or checkpoint.
    """
    if size is not None and (len(size) not in (1, 2) or min(size) < 1):
        raise ValueError(f'size={tuple(size)} must be at least (1, 1): height and width, or the '
                         f'shorter side')
    check_pictures([] if image is None else [image])
    if checkpoint is not None:
        check_checkpoint(checkpoint, 'checkpoint')
    init_default_scope(scope_of(cfg))
    pixels = None if image is None else read_picture(cfg, image)
    model: Any = build_bare(cfg)
    side = cell_side(model)
    shape = input_size(cfg, size, None if pixels is None else pixels.shape[:2], side)
    if whole and pixels is not None and any(each % side for each in shape):
        raise ValueError(f'size={shape} must be multiples of {side}, the side of a cell in the '
                         f'coarsest map or what images are padded to, so that cells lie where the '
                         f'photo shows them; --size with one number takes the nearest')
    inputs = noise(cfg, shape) if pixels is None else as_inputs(cfg, [pixels], shape)
    if checkpoint is not None:
        load_weights(model, checkpoint)
    drawn, run = pass_of(model, inputs)
    picture = None if pixels is None else _picture(pixels)
    return Subject(drawn, run, source_of(cfg, checkpoint), picture, shape), inputs


def source_of(cfg: Config, checkpoint: str | None) -> str:
    """The files a model is from, for titles."""
    file = Path(cfg.filename).name if cfg.filename else 'config'
    return f'{file}, {"untrained" if checkpoint is None else Path(checkpoint).name}'


def pass_of(model: Any, inputs: Tensor) -> tuple[nn.Module, Callable[[], object]]:
    """What of a model figures are drawn of, its backbone or all of a DETR, and a pass of it."""
    if isinstance(getattr(model, 'encoder', None), nn.Module):
        return model, lambda: model(inputs, image_samples(inputs), mode='tensor')
    return model.backbone, lambda: model.backbone(inputs)


def cell_side(model: Any) -> int:
    """Pixels that the sides of an image must be multiples of so that no map of a model holds cells
    in part, nor its preprocessor pads: the side of a cell in the coarsest map, 32 where nothing
    says it, and what images are padded to."""
    backbone, side = model.backbone, 32
    if hasattr(backbone, 'patch_sizes'):
        side = math.prod(backbone.patch_sizes)
    elif hasattr(backbone, 'patch_size'):
        # A pyramid halves its map from stage to stage.
        stages: Sequence[Any] = getattr(backbone, 'stages', ())
        side = int(backbone.patch_size * 2 ** max(len(stages) - 1, 0))
    preprocessor = getattr(model, 'data_preprocessor', None)
    padded = [getattr(preprocessor, name, None) for name in ('pad_size_divisor', 'size_divisor')]
    return math.lcm(side, *(int(each) for each in padded if each))


def input_size(cfg: Config, size: Sequence[int] | None, photo: Sequence[int] | None, side: int
               ) -> tuple[int, int]:
    """(H, W) of the input, see :func:`build_subject`.

    Args:
        photo: (h, w) of the picture; None has the aspect 1.
        side: of a cell.
    """
    if size is None:
        size = usual_size(cfg)
        if photo is not None:  # whole cells, and no more than tables are made for
            size = [max(1, each // side) * side for each in size]
    if len(size) == 2:
        return int(size[0]), int(size[1])
    shorter, sides = size[0], photo or (1, 1)
    found = [max(1, round(shorter * each / min(sides) / side)) * side for each in sides]
    return found[0], found[1]


def _picture(pixels: np.ndarray) -> np.ndarray:
    """(h, w, 3) red first, from 0 to 1."""
    longest = max(pixels.shape[:2])
    if longest > _DRAWN:
        pixels = mmcv.imrescale(pixels, _DRAWN / longest)
    colors = pixels[..., ::-1] if pixels.ndim == 3 else np.repeat(pixels[..., None], 3, 2)
    return colors / 255.0
