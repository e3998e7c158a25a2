"""Measures the model of a config: how it depends on position, without training."""
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
from torch import Tensor

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

#: Number of noise images, and of images from the config's test data.
NOISE, PICTURES = 2, 4
#: Smallest number of rows and columns of the last map for measuring shifts.
LEAST_CELLS = 2


def diagnose_config(cfg: Config, checkpoint: str | None = None, *, images: Sequence[str] = (),
                    size: tuple[int, int] | None = None, seed: int = 0) -> dict[str, Any]:
    """Measure the model of a config, see :func:`mmposenc.lab.diagnose.diagnose`.

    Args:
        cfg: a config of mmdet, mmseg or mmpretrain.
        checkpoint: weights of the whole model; None: random weights.
        images: files of pictures; by default some of the config's test data, if it is on disk.
            Noise is measured too.
        size: (H, W) in pixels that pictures are resized to; None: the config's usual size, rounded
            to whole cells of the last map.
        seed: seed of noise, crops and random weights.

    Returns:
        A dict. ``trained``: whether there is a checkpoint; ``size``: [H, W]; ``images``: the images
        used; ``note``: why there is no test data; ``measures``: a dict for each measure, see
        :meth:`mmposenc.lab.diagnose.Measure.json`.

    Raises:
        ValueError: the checkpoint or the size does not fit, a picture cannot be read, or the model
            has nothing to measure.
        FileNotFoundError: a picture or the checkpoint does not exist.
    """
    result, found = measure_config(cfg, checkpoint, images=images, size=size, seed=seed)
    return {**result, 'measures': [each.json() for each in found]}


def measure_config(cfg: Config, checkpoint: str | None = None, *, images: Sequence[str] = (),
                   size: tuple[int, int] | None = None, seed: int = 0
                   ) -> tuple[dict[str, Any], list[Measure]]:
    """As :func:`diagnose_config`; it returns Measure objects, for figures."""
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
    """The part of a model that is measured, and how it is run: the backbone, or the whole model if
    it has an encoder of this project."""
    tells = type(getattr(model, 'data_preprocessor', None)).__module__.startswith('mmposenc.')
    whole = any(map(is_encoder, model.modules()))

    def run(images: Tensor, shapes: Any) -> object:
        if tells:  # otherwise image sizes are not passed to the model
            set_img_shapes(images, shapes)
        if not whole:
            return model.backbone(images)
        if scope == 'mmseg':
            return model.encode_decode(images, image_metas(images))
        return model(images, image_samples(images, shapes), mode='tensor')

    return Examined(model if whole else model.backbone, run)


def _size(cfg: Config, examined: Examined, size: tuple[int, int] | None) -> tuple[int, int]:
    """(H, W) as multiples of a cell of the last map."""
    usual = usual_size(cfg)
    # Not at the given size: at a small one with partial cells the ratio of sides is less accurate.
    cell = examined.maps(torch.zeros(1, image_channels(cfg), *usual))[-1].stride
    if size is not None and any(side % cell for side in size):
        raise ValueError(f'size={tuple(size)} must be multiples of {cell}, the stride of the last '
                         f'map')
    height, width = (max(LEAST_CELLS, round(side / cell)) * cell for side in size or usual)
    return height, width


def _test_images(cfg: Config) -> tuple[list[Any], str]:
    """Some pictures, spread over the test data, as files or pixels; or none and the reason."""
    phase = 'test' if cfg.get('test_dataloader') else 'val'
    if not cfg.get(f'{phase}_dataloader'):
        return [], 'the config has no test_dataloader'
    offline = copy.deepcopy(cfg)
    with DATASETS.switch_scope_and_registry(scope_of(cfg)) as registry:
        for _, node in data_sets(offline, phase):
            if 'download' in inspect.signature(registry.get(node.type)).parameters:
                node.download = False  # a figure does not start a download
    try:
        check_files(cfg, (phase,))
        dataset = build_data_set(offline[f'{phase}_dataloader'].dataset)
    except (FileNotFoundError, RuntimeError) as error:  # RuntimeError: not downloaded
        return [], f'the test data is not there ({in_a_line(error)})'
    count = min(PICTURES, len(dataset))
    infos = [dataset.get_data_info(index * len(dataset) // count) for index in range(count)]
    return [np.asarray(each['img']) if 'img' in each else str(each['img_path'])
            for each in infos], ''


def _read(cfg: Config, pictures: Sequence[str | np.ndarray], hw_shape: tuple[int, int]) -> Tensor:
    """Preprocessed pictures (B, in_channels, H, W), each resized to ``hw_shape``."""
    pixels = []
    for picture in pictures:
        if isinstance(picture, str):
            pixels.append(read_picture(cfg, picture))
        else:  # data sets that store pixels store RGB
            pixels.append(picture[..., ::-1] if picture.ndim == 3 else picture)
    batch = as_inputs(cfg, pixels, hw_shape)
    right, below = hw_shape[1] - batch.shape[-1], hw_shape[0] - batch.shape[-2]
    # A preprocessor may pad to a multiple of some number.
    return F.pad(batch, (0, right, 0, below)) if min(right, below) < 0 else batch
