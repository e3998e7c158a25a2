"""Inspects the model of a config: writes lines to the terminal, and pictures and numbers to a
folder."""
from __future__ import annotations

import copy
import inspect
import json
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import mmcv
import numpy as np
from mmengine.config import Config
from mmengine.registry import DATASETS

from mmposenc.engine.config import images, models
from mmposenc.engine.config.checked_classes import build_data_set
from mmposenc.engine.config.checks import check_checkpoint, check_files
from mmposenc.engine.config.parsed import ParsedConfig
from mmposenc.functional.grids import pair
from mmposenc.writing import building_folder, check_new_files, move_files

from .counts import Counts, count_for_one_image
from .drawing import Array, Picture
from .figures import all_pictures, shift_error
from .recording import InspectedModel, is_own_detr_encoder

#: The longer side of a photo in pictures.
PHOTO = 512
#: The names of all pictures that an inspection may write.
PICTURES = ('kernels', 'similarity', 'offsets', 'buckets', 'attention')


def inspect_config(cfg: Config, checkpoint: str | None = None, *,
                   size: tuple[int, int] | None = None, image: str | None = None,
                   at: tuple[float, float] = (0.5, 0.5), out: str | None = None) -> list[str]:
    """Inspect the model of a config.

    Args:
        cfg: a config of mmdet, mmseg or mmpretrain, of this project's models or others.
        checkpoint: weights of the whole model; None leaves them random.
        size: (H, W) of the input in pixels; None: the config's usual size.
        image: file of a picture; by default the first of the config's test data, else noise.
        at: the place of the token whose attention is drawn, as fractions of height and width.
        out: folder of pictures and ``numbers.json``; None writes nothing.

    Returns:
        Lines for a reader: where encodings sit, counts, and a sentence for each picture.

    Raises:
        ValueError: a size below 1, a place outside the image, a checkpoint that does not fit or
            without ``out``, a picture that cannot be read, or a folder that holds an inspection.
        FileNotFoundError: the picture or the checkpoint does not exist.
    """
    parsed = ParsedConfig(cfg)
    _ = parsed.library  # Raises an error if the config names no library.
    if not all(0.0 <= each < 1.0 for each in at):
        raise ValueError(f'at={at} must be two fractions of height and width in [0, 1)')
    if image is not None and not Path(image).is_file():
        raise FileNotFoundError(f'image: there is no file {image!r}')
    if checkpoint is not None:
        check_checkpoint(checkpoint, 'checkpoint')
        if out is None:
            raise ValueError(f'checkpoint={checkpoint!r} is shown only with out, a folder for the '
                             'pictures: give --out DIR')
    if out is not None:
        names = (*(f'{each}.png' for each in PICTURES), 'numbers.json')
        check_new_files(out, names, '--out', ours=lambda _: False, data=parsed.folders_of_data())
    counts = count_for_one_image(cfg, size or parsed.usual_size)
    lines = counted_lines(counts)
    return lines if out is None else lines + _write_inspection(
        parsed, checkpoint, counts, Path(out), size=size, image=image, at=at)


def _write_inspection(parsed: ParsedConfig, checkpoint: str | None, counts: Counts, out: Path, *,
                      size: tuple[int, int] | None, image: str | None, at: tuple[float, float]
                      ) -> list[str]:
    """Run the model, write what is seen of it, and return lines about that."""
    model: Any = models.build_bare(parsed.cfg)
    if checkpoint is not None:
        models.load_all_weights(model, checkpoint)
    cell = side_multiple(model)
    height, width = (max(1, round(side / cell)) * cell for side in size or parsed.usual_size)
    picture, words = picture_in_words(parsed, image)
    pixels = images.noise_image(parsed, (height, width))
    if picture is not None:  # A preprocessor may fill it up to a fixed size.
        pixels = images.picture_as_input(parsed, picture, (height, width))[..., :height, :width]
    subject = InspectedModel(model.backbone, model.backbone)
    if any(map(is_own_detr_encoder, model.modules())):
        subject = InspectedModel(model, partial(images.run_network, parsed.library, model))
    photo = None if picture is None else rgb_of_pixels(picture)
    pictures = all_pictures(subject, pixels, photo, at)
    error = shift_error(subject, pixels, cell)
    about = {**counts._asdict(), 'config': parsed.cfg.filename, 'checkpoint': checkpoint,
             'image': words, 'input': [height, width], 'shift_error': error}
    write_pictures_and_numbers(out, about, pictures)
    weights = 'random weights' if checkpoint is None else Path(checkpoint).name
    lines = ['', f'{weights} on {words}, {height} x {width} pixels, in {out}:']
    if error is not None:
        lines.append(f'shift error {error:.2g}: how much the output changes, as a share of its '
                     f'norm, when the picture is rolled by {cell} pixels; 0 means that nothing '
                     'depends on absolute position')
    return lines + [f'{each.name}.png: {each.sentence}' for each in pictures]


def counted_lines(counts: Counts) -> list[str]:
    """Where the encodings sit, and what the model takes."""
    height, width = counts.hw_shape
    lines = [counts.model, *(counts.encodings or ['no position encodings']),
             f'parameters: {counts.parameters:,}, {counts.parameters_without:,} without encodings',
             f'multiply-accumulates for one image of {height} x {width} pixels: '
             f'{macs_in_words(counts.macs)}']
    return [*lines, counts.note] if counts.note else lines


def macs_in_words(macs: int) -> str:
    """A number of multiply-accumulates in words: '4.509 G', '5.214 M'."""
    return f'{macs / 1e9:.3f} G' if macs >= 1e9 else f'{macs / 1e6:.3f} M'


def write_pictures_and_numbers(folder: Path, about: dict[str, object],
                               pictures: Sequence[Picture]) -> None:
    """Write the pictures, and their numbers with those of the counts as ``numbers.json``: all of
    them or nothing."""
    about = {**about, 'pictures': {each.name: each.numbers for each in pictures}}
    text = json.dumps(about, default=np.ndarray.tolist)
    # JSON has no numbers that are not finite.
    finite = json.loads(text, parse_constant=lambda name: None)
    with building_folder(folder / 'inspection') as new:
        for each in pictures:
            each.draw().savefig(new / f'{each.name}.png', dpi=130)
        (new / 'numbers.json').write_text(f'{json.dumps(finite, indent=1)}\n')
        move_files(new, folder)


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


def picture_in_words(parsed: ParsedConfig, path: str | None) -> tuple[Array | None, str]:
    """A picture as :func:`.images.read_picture` gives it, and what it is.

    Args:
        parsed: the config.
        path: its file; None: the first picture of the test data, or None with the reason.
    """
    if path is not None:
        return images.read_picture(parsed, path), path
    phase = 'test' if parsed.cfg.get('test_dataloader') else 'val'
    if not parsed.cfg.get(f'{phase}_dataloader'):
        return None, 'noise (the config has no test data)'
    offline = ParsedConfig(copy.deepcopy(parsed.cfg))
    with DATASETS.switch_scope_and_registry(parsed.library) as registry:
        for node in offline.data_sets(phase).values():
            if 'download' in inspect.signature(registry.get(node.type)).parameters:
                node.download = False  # An inspection does not start a download.
    try:
        check_files(parsed, (phase,))
        info = build_data_set(offline.cfg, phase).get_data_info(0)
    # A RuntimeError means that the data were not downloaded.
    except (FileNotFoundError, IndexError, RuntimeError):
        return None, 'noise (the test data is not there)'
    if 'img' not in info:
        return images.read_picture(parsed, str(info['img_path'])), 'the first test image'
    pixels = np.asarray(info['img'])
    # Data sets that store pixels store RGB, but files are read in the order blue, green, red.
    return pixels[..., ::-1] if pixels.ndim == 3 else pixels, 'the first test image'


def rgb_of_pixels(pixels: Array) -> Array:
    """A picture that was read, as (h, w, 3) in RGB from 0 to 1."""
    longest = max(pixels.shape[:2])
    if longest > PHOTO:
        pixels = mmcv.imrescale(pixels, PHOTO / longest)
    colors: Array = pixels[..., ::-1] if pixels.ndim == 3 else np.repeat(pixels[..., None], 3, 2)
    return colors / 255.0
