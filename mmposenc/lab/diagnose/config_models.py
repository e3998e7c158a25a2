"""Measures of the model that a config describes: what it knows of places, without training."""
from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope
from torch import Tensor, nn

from mmposenc.command_line import in_a_line
from mmposenc.engine.config.checks import check_checkpoint, check_files
from mmposenc.engine.config.models import (
    as_inputs,
    build_bare,
    check_pictures,
    image_channels,
    image_metas,
    image_samples,
    load_weights,
    noise,
    read_picture,
)
from mmposenc.engine.config.nodes import build_data_set, data_sets, usual_size
from mmposenc.engine.config.testing import scope_of
from mmposenc.functional.image_sizes import set_img_shapes

from . import Measure, diagnose
from .features import Examined, is_encoder

#: Pictures of noise, and of the config's test data where it is there.
NOISE, PICTURES = 2, 4
#: Rows and columns of the last map that shifts need.
LEAST_CELLS = 2


def diagnose_config(cfg: Config, checkpoint: str | None = None, *, images: Sequence[str] = (),
                    size: tuple[int, int] | None = None, seed: int = 0) -> dict[str, Any]:
    """Measures the model of a config, see :func:`mmposenc.lab.diagnose.diagnose`.

    Args:
        cfg: a config of mmdet, mmseg or mmpretrain.
        checkpoint: weights of the whole model; None leaves them random.
        images: pictures; without any, some of the config's test data where it is on disk. Noise is
            measured besides.
        size: (H, W) that pictures are resized to; None: :func:`.config_sizes.usual_size`, rounded
            to whole cells of the last map.
        seed: of noise, crops and random weights.

    Returns:
        ``trained``: whether there was a checkpoint; ``size``: [H, W]; ``images``: what was looked
        at; ``note``: why no test data was; ``measures``: one dict each, see
        :meth:`mmposenc.lab.diagnose.Measure.json`.

    Raises:
        ValueError: a checkpoint or a size that does not fit, a picture that can't be read, a model
            with nothing to look at.
        FileNotFoundError: no such picture or checkpoint.
    """
    result, found = measure_config(cfg, checkpoint, images=images, size=size, seed=seed)
    return {**result, 'measures': [each.json() for each in found]}


def measure_config(cfg: Config, checkpoint: str | None = None, *, images: Sequence[str] = (),
                   size: tuple[int, int] | None = None, seed: int = 0
                   ) -> tuple[dict[str, Any], list[Measure]]:
    """As :func:`diagnose_config`, with the measures as they are, for figures."""
    if size is not None and min(size) < 1:
        raise ValueError(f'size={tuple(size)} must be at least (1, 1)')
    check_pictures(images)
    if checkpoint is not None:
        check_checkpoint(checkpoint, 'checkpoint')
    init_default_scope(scope_of(cfg))
    model = build_bare(cfg, seed=seed)
    if checkpoint is not None:
        load_weights(model, checkpoint)
    examined = examined_of(model, scope_of(cfg))
    hw_shape = _size(cfg, examined, size)
    batches = {'noise': noise(cfg, hw_shape, count=NOISE, seed=seed)}
    pictures, note = (list(images), '') if images else _test_images(cfg)
    if pictures:
        batches['pictures'] = _read(cfg, pictures, hw_shape)
    looked_at = ['noise', *images]
    if pictures and not images:
        looked_at.append(f'{len(pictures)} of the test data')
    result = dict(trained=checkpoint is not None, size=list(hw_shape), images=looked_at, note=note)
    return result, diagnose(examined.model, batches, examined.run, seed=seed)


def examined_of(model: Any, scope: str) -> Examined:
    """What of a model is measured, its backbone or, where an encoder of this project follows, all
    of it; and a pass of that."""
    tells = type(getattr(model, 'data_preprocessor', None)).__module__.startswith('mmposenc.')
    whole = any(map(is_encoder, model.modules()))

    def run(images: Tensor, shapes: Any) -> object:
        if tells:  # else the model never learns how far images reach
            set_img_shapes(images, shapes)
        if not whole:
            return model.backbone(images)
        if scope == 'mmseg':
            return model.encode_decode(images, image_metas(images))
        return model(images, image_samples(images, shapes), mode='tensor')

    return Examined(model if whole else _backbone(model), run)


def _backbone(model: Any) -> nn.Module:
    backbone = getattr(model, 'backbone', None)
    if not isinstance(backbone, nn.Module):
        raise ValueError(f'model={type(model).__name__} has no backbone to measure')
    return backbone


def _size(cfg: Config, examined: Examined, size: tuple[int, int] | None) -> tuple[int, int]:
    """Sides of whole cells of the last map."""
    usual = usual_size(cfg)
    # Not at the given size: of a small one whose last cells are not whole, sides by cells say less.
    cell = examined.maps(torch.zeros(1, image_channels(cfg), *usual))[-1].stride
    if size is not None and any(side % cell for side in size):
        raise ValueError(f'size={tuple(size)} must be multiples of {cell}, the cells of the last '
                         f'map')
    height, width = (max(LEAST_CELLS, round(side / cell)) * cell for side in size or usual)
    return height, width


def _test_images(cfg: Config) -> tuple[list[Any], str]:
    """Some pictures of the test data, spread over it, as files or pixels; or none and why."""
    phase = 'test' if cfg.get('test_dataloader') else 'val'
    if not cfg.get(f'{phase}_dataloader'):
        return [], 'the config has no test_dataloader'
    offline = copy.deepcopy(cfg)
    with DATASETS.switch_scope_and_registry(scope_of(cfg)) as registry:
        for _, node in data_sets(offline, phase):
            if 'download' in inspect.signature(registry.get(node.type)).parameters:
                node.download = False  # nothing is fetched for a figure
    try:
        check_files(cfg, (phase,))
        dataset = build_data_set(offline[f'{phase}_dataloader'].dataset)
    except (FileNotFoundError, RuntimeError) as error:  # RuntimeError: what was not downloaded
        return [], f'the test data is not there ({in_a_line(error)})'
    count = min(PICTURES, len(dataset))
    infos = [dataset.get_data_info(index * len(dataset) // count) for index in range(count)]
    return [np.asarray(each['img']) if 'img' in each else str(each['img_path'])
            for each in infos], ''


def _read(cfg: Config, pictures: Sequence[str | np.ndarray], hw_shape: tuple[int, int]) -> Tensor:
    """(B, in_channels, H, W) as the model takes them, each resized to one size."""
    pixels = []
    for picture in pictures:
        if isinstance(picture, str):
            pixels.append(read_picture(cfg, picture))
        else:  # data sets that hold their pictures hold RGB
            pixels.append(picture[..., ::-1] if picture.ndim == 3 else picture)
    batch = as_inputs(cfg, pixels, hw_shape)
    right, below = hw_shape[1] - batch.shape[-1], hw_shape[0] - batch.shape[-2]
    # A preprocessor may fill up to a multiple of its own.
    return F.pad(batch, (0, right, 0, below)) if min(right, below) < 0 else batch
