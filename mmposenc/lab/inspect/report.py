"""Inspects the model of a config: writes lines to the terminal, and pictures and numbers to a
folder."""
from __future__ import annotations

import copy
import inspect
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mmcv
import numpy as np
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.registry import DATASETS, init_default_scope
from torch import Tensor

from mmposenc.engine.config import models
from mmposenc.engine.config.checks import check_checkpoint, check_files, check_writable_folder
from mmposenc.engine.config.nodes import build_data_set, data_sets_with_keys, usual_size
from mmposenc.engine.config.testing import scope_of
from mmposenc.functional.convolutions import pair

from .counts import Counts, count_for_one_image
from .drawing import Array, Picture
from .figures import all_pictures
from .probes import all_measures
from .recording import InspectedModel, is_own_detr_encoder

#: The number of images from the test data, or of noise; and the longer side of a photo in pictures.
IMAGES, PHOTO = 4, 512
#: The names of all pictures that an inspection may write.
PICTURES = ('kernels', 'similarity', 'offsets', 'buckets', 'attention', 'attention_distance',
            'shift_error', 'position_probe')


@dataclass
class ModelInputs:
    """The inputs on which a model is run.

    Attributes:
        images: (B, C, H, W), as the model takes them.
        photo: the first image for readers, (h, w, 3) from 0 to 1; None for noise.
        names: the images in words, or why they are noise.
    """

    images: Tensor
    photo: Array | None
    names: str


def inspect_config(cfg: Config, checkpoint: str | None = None, *,
                   size: tuple[int, int] | None = None, images: Sequence[str] = (),
                   at: tuple[float, float] = (0.5, 0.5), out: str | None = None,
                   seed: int = 0) -> list[str]:
    """Inspect the model of a config.

    Args:
        cfg: a config of mmdet, mmseg or mmpretrain, of this project's models or others.
        checkpoint: weights of the whole model; None leaves them random and measures nothing.
        size: (H, W) of the input in pixels; None: the config's usual size.
        images: files of pictures; by default some of the config's test data, else noise.
        at: the place of the token whose attention is drawn, as fractions of height and width.
        out: folder of pictures and ``numbers.json``; None writes nothing.
        seed: of noise, crops and random weights.

    Returns:
        Lines for a reader: where encodings sit, counts, and a sentence for each picture.

    Raises:
        ValueError: a size below 1, a place outside the image, a checkpoint that does not fit or
            without ``out``, a picture that cannot be read, or a folder that holds an inspection.
        FileNotFoundError: a picture or the checkpoint does not exist.
    """
    scope_of(cfg)  # Raises an error if the config names no library.
    if not all(0.0 <= each < 1.0 for each in at):
        raise ValueError(f'at={at} must be two fractions of height and width in [0, 1)')
    models.check_pictures_exist(images)
    if checkpoint is not None:
        check_checkpoint(checkpoint, 'checkpoint')
        if out is None:
            raise ValueError(f'checkpoint={checkpoint!r} is measured only with out, a folder for '
                             'the pictures: give --out DIR')
    if out is not None:
        check_out_folder(Path(out))
    counts = count_for_one_image(cfg, size or usual_size(cfg))
    lines = counted_lines(counts)
    if out is None:
        return lines
    subject, inputs = inspected_model_and_inputs(cfg, checkpoint, images=images, size=size,
                                                 seed=seed)
    pictures = all_pictures(subject, inputs.images[:1], inputs.photo, at)
    if checkpoint is not None:
        pictures += all_measures(subject, inputs.images, seed)
    height, width = inputs.images.shape[-2:]
    about = {**counts._asdict(), 'config': cfg.filename, 'checkpoint': checkpoint,
             'images': inputs.names, 'input': [height, width]}
    write_pictures_and_numbers(Path(out), about, pictures)
    weights = 'random weights' if checkpoint is None else Path(checkpoint).name
    lines += ['', f'pictures of {weights} on {inputs.names}, {height} x {width} pixels, in {out}:']
    return lines + [f'{each.name}.png: {each.sentence}' for each in pictures]


def counted_lines(counts: Counts) -> list[str]:
    """Where the encodings sit, and what the model takes with and without them."""
    height, width = counts.hw_shape
    without = ('' if counts.macs_without is None
               else f', {macs_in_words(counts.macs_without)} without encodings')
    lines = [counts.model, *(counts.encodings or ['no position encodings']),
             f'parameters: {counts.parameters:,}, {counts.parameters_without:,} without encodings',
             f'multiply-accumulates for one image of {height} x {width} pixels: '
             f'{macs_in_words(counts.macs)}{without}']
    return [*lines, counts.note] if counts.note else lines


def macs_in_words(macs: int) -> str:
    """A number of multiply-accumulates in words: '4.509 G', '5.214 M'."""
    return f'{macs / 1e9:.3f} G' if macs >= 1e9 else f'{macs / 1e6:.3f} M'


def check_out_folder(folder: Path) -> None:
    """Check that a folder can be written into, and that it holds no earlier inspection, or other
    files of the same names.

    Raises:
        ValueError: names the option, the folder and the file.
    """
    check_writable_folder(str(folder), '--out')
    for name in (*(f'{each}.png' for each in PICTURES), 'numbers.json'):
        if os.path.lexists(folder / name):
            raise ValueError(f'--out {folder}: {name} exists; give another folder')


def write_pictures_and_numbers(folder: Path, about: dict[str, object],
                               pictures: Sequence[Picture]) -> None:
    """Write the pictures, and their numbers with those of the counts as ``numbers.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    for each in pictures:
        each.draw().savefig(folder / f'{each.name}.png', dpi=130)
    about = {**about, 'pictures': {each.name: each.numbers for each in pictures}}
    text = json.dumps(about, default=np.ndarray.tolist)
    # JSON has no numbers that are not finite.
    finite = json.loads(text, parse_constant=lambda name: None)
    (folder / 'numbers.json').write_text(f'{json.dumps(finite, indent=1)}\n')


def inspected_model_and_inputs(cfg: Config, checkpoint: str | None, *, images: Sequence[str] = (),
                               size: tuple[int, int] | None = None, seed: int = 0
                               ) -> tuple[InspectedModel, ModelInputs]:
    """The model of a config, ready to run, and its inputs.

    Args:
        cfg, checkpoint, images, size, seed: see :func:`inspect_config`; sides are rounded to whole
            cells of the coarsest map.
    """
    scope = scope_of(cfg)
    init_default_scope(scope)
    model: Any = models.build_bare(cfg, seed=seed)
    if checkpoint is not None:
        models.load_all_weights(model, checkpoint)
    side = side_multiple(model)
    height, width = (max(1, round(each / side)) * side for each in size or usual_size(cfg))
    pictures, names = (list(images),
                       f'{len(images)} images') if images else pictures_of_test_data(cfg)
    batch, photo = models.noise_images(cfg, (height, width), count=IMAGES, seed=seed), None
    if pictures:
        pixels = [models.read_picture(cfg, each) if isinstance(each, str) else each
                  for each in pictures]
        batch, photo = models.pictures_as_inputs(cfg, pixels,
                                                 (height, width)), rgb_of_pixels(pixels[0])
        right, below = width - batch.shape[-1], height - batch.shape[-2]
        if min(right, below) < 0:  # A preprocessor may pad to a multiple of some number.
            batch = F.pad(batch, (0, right, 0, below))
    if any(map(is_own_detr_encoder, model.modules())):
        subject = InspectedModel(model, lambda images: models.run_network(scope, model, images))
    else:
        subject = InspectedModel(model.backbone, model.backbone)
    return subject, ModelInputs(batch, photo, names)


def side_multiple(model: Any) -> int:
    """The number of pixels of which an image's sides must be multiples, so that every map of a
    model has whole cells: the side of a cell in the coarsest map (32 if nothing says it), and the
    multiple to which images are padded."""
    backbone, side = model.backbone, 32
    if hasattr(backbone, 'patch_sizes'):
        side = math.prod(backbone.patch_sizes)
    elif isinstance(patch := getattr(backbone, 'patch_size', None), (int, tuple)):
        # A pyramid halves its map from stage to stage.
        side = math.lcm(*pair(patch)) * 2 ** max(len(getattr(backbone, 'stages', ())) - 1, 0)
    preprocessor = getattr(model, 'data_preprocessor', None)
    padded = [getattr(preprocessor, name, None) for name in ('pad_size_divisor', 'size_divisor')]
    return math.lcm(side, *(int(each) for each in padded if each))


def pictures_of_test_data(cfg: Config) -> tuple[list[Any], str]:
    """Some pictures, spread over the test data, as files or pixels, and what they are; or none,
    and the reason."""
    phase = 'test' if cfg.get('test_dataloader') else 'val'
    if not cfg.get(f'{phase}_dataloader'):
        return [], 'noise (the config has no test data)'
    offline = copy.deepcopy(cfg)
    with DATASETS.switch_scope_and_registry(scope_of(cfg)) as registry:
        for _, node in data_sets_with_keys(offline, phase):
            if 'download' in inspect.signature(registry.get(node.type)).parameters:
                node.download = False  # An inspection does not start a download.
    try:
        check_files(cfg, (phase,))
        dataset = build_data_set(offline[f'{phase}_dataloader'].dataset)
    # A RuntimeError means that the data were not downloaded.
    except (FileNotFoundError, RuntimeError):
        return [], 'noise (the test data is not there)'
    chosen = min(IMAGES, len(dataset))
    infos = [dataset.get_data_info(index * len(dataset) // chosen) for index in range(chosen)]
    # Data sets that store pixels store RGB, but files are read in the order blue, green, red.
    pictures = [np.asarray(each['img'])[..., ::-1] if np.ndim(each.get('img')) == 3
                else np.asarray(each['img']) if 'img' in each else str(each['img_path'])
                for each in infos]
    return pictures, f'{chosen} of the test images'


def rgb_of_pixels(pixels: Array) -> Array:
    """A picture that was read, as (h, w, 3) in RGB from 0 to 1."""
    longest = max(pixels.shape[:2])
    if longest > PHOTO:
        pixels = mmcv.imrescale(pixels, PHOTO / longest)
    colors: Array = pixels[..., ::-1] if pixels.ndim == 3 else np.repeat(pixels[..., None], 3, 2)
    return colors / 255.0
