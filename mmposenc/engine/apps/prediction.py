"""Predicts pictures that belong to no data set."""
from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose, pseudo_collate
from mmengine.registry import TRANSFORMS, VISUALIZERS, init_default_scope
from mmengine.structures import BaseDataElement
from torch import nn

from ...terminal.messages import error_text, in_a_line, printable
from ..config.checks import (
    check_checkpoint,
    check_enough_queries,
    check_num_classes,
    check_sections,
    check_writable_folder,
)
from ..config.models import build_to_predict, device_of, image_channels, load_all_weights
from ..config.nodes import pipelines_of_phase, type_name, type_without_library
from ..config.testing import TASKS, VISUALIZERS_OF, scope_of
from ..console import progress_bar, score_threshold_option
from .pictures import Source, draw_sample, picture_sources, rgb_bytes_of_loaded, write_picture
from .records import PredictionsFile, Record, class_colours, class_names, picture_record

#: A picture on its way through a pipeline: its path, sizes and pixels, and in the end the model's
#: input.
Packed = dict[str, Any]


class LoadedPicture(NamedTuple):
    """A picture that was loaded.

    Attributes:
        source: the file.
        about: what json says of it: file, width, height.
        pixels: (H, W, 3) RGB bytes.
        packed: the model's input.
    """

    source: Source
    about: Record
    pixels: np.ndarray
    packed: Packed


class PictureReader:
    """Turns files into inputs of the model, by the steps of the config's own test pipeline.

    Args:
        cfg: with a test_dataloader.

    Raises:
        ValueError: its pipeline reads pictures in another way than from files.
    """

    def __init__(self, cfg: Config) -> None:
        outermost = [[], *pipelines_of_phase(cfg, 'test')][-1]
        steps = [step for step in deepcopy(outermost) if 'Annotation' not in type_name(step)]
        # Data sets such as CIFAR hold their pictures in memory, as RGB or grey.
        self.held = not steps or not type_without_library(steps[0]).startswith('Load')
        grey = {'color_type': 'grayscale'} if image_channels(cfg) == 1 else {}
        loading = grey if self.held else dict(steps.pop(0))
        if not self.held and type_without_library(loading) != 'LoadImageFromFile':
            raise ValueError(f'the test pipeline begins with {loading["type"]!r}: predict reads '
                             'pictures by LoadImageFromFile')
        # This project's class refuses truncated files, and reads the same pixels of whole ones.
        self.load = TRANSFORMS.build({**loading, 'type': 'mmposenc.LoadImageFromFile',
                                      'ignore_empty': False})
        self.steps = Compose(steps)

    def read_readable(self, sources: list[Source], skip: Callable[[Source, Exception], None]
                      ) -> Iterator[LoadedPicture]:
        """Yield every picture that can be read.

        Args:
            sources: files, in this order.
            skip: called with each file that can't be read, and why.
        """
        for source in sources:
            try:
                yield self._read(source)
            except Exception as error:  # Decoders and transforms may raise anything.
                skip(source, error)

    def _packed_from_memory(self, source: Source, pixels: np.ndarray) -> Packed:
        """What the first step of the pipeline would return for a file with these pixels;
        transparency is dropped."""
        if pixels.ndim == 2:
            pixels = np.repeat(pixels[..., None], 3, axis=2)
        image = np.ascontiguousarray(pixels[..., 2::-1])
        if self.load.color_type == 'grayscale':
            image = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
        if self.load.to_float32:
            image = image.astype(np.float32)
        return {'img_path': str(source.path), 'img_id': 0, 'img': image,
                'img_shape': image.shape[:2], 'ori_shape': image.shape[:2]}

    def _read(self, source: Source) -> LoadedPicture:
        loaded = (self.load({'img_path': str(source.path), 'img_id': 0}) if source.pixels is None
                  else self._packed_from_memory(source, source.pixels))
        image = loaded['img']
        pixels = rgb_bytes_of_loaded(image)
        if self.held and image.ndim == 3:
            loaded['img'] = np.ascontiguousarray(image[..., ::-1])
        height, width = image.shape[:2]
        about = {'file': source.file, 'width': width, 'height': height}
        return LoadedPicture(source, about, pixels, self.steps(loaded))


class Predictor:
    """A model together with a reader of pictures: it takes sources and yields predictions.

    Args:
        model: with its weights; it is set to eval mode.
        reader: of its config.
        batch_size: pictures of one size that pass the model at once.
    """

    def __init__(self, model: nn.Module, reader: PictureReader, batch_size: int = 1) -> None:
        check_batch_size(batch_size)
        self.model, self.reader, self.batch_size = model.eval(), reader, batch_size

    def __call__(self, sources: list[Source], skip: Callable[[Source, Exception], None]
                 ) -> Iterator[tuple[LoadedPicture, BaseDataElement]]:
        """Yield every picture with the model's sample for it, on the CPU.

        Args:
            sources: files and arrays, in this order.
            skip: called with each that can't be predicted, and why.
        """
        for batch in batches_of_one_shape(self.reader.read_readable(sources, skip),
                                          self.batch_size):
            for item, sample in _predict_batch(self.model, batch, skip):
                yield item, sample.cpu()


def batches_of_one_shape(items: Iterator[LoadedPicture],
                         size: int) -> Iterator[list[LoadedPicture]]:
    """Group up to ``size`` consecutive items whose inputs have the same shape."""
    batch: list[LoadedPicture] = []
    for item in items:
        if batch and (len(batch) == size
                      or item.packed['inputs'].shape != batch[0].packed['inputs'].shape):
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


#: Error numbers of a disk on which no further file can be written.
_NO_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class PredictionCounts(NamedTuple):
    """How many pictures were predicted, and which files could not be read."""

    done: int
    skipped: list[dict[str, str]]


def predict(cfg: Config, checkpoint: str, source: str, out: str | Path, *,
            score_thr: float | None = None, batch_size: int = 1, pictures: bool = True,
            device: str | None = None, overwrite: bool = False, strict: bool = False,
            say: Callable[[str], None] = print) -> PredictionCounts:
    """Predicts a picture, or a folder of them, and writes what was predicted.

    Args:
        cfg: a config of mmdet, mmseg or mmpretrain; its test pipeline reads the pictures.
        checkpoint: the weights.
        source: a picture, or a folder with any below.
        out: a folder for ``predictions.json``, ``pictures/`` and, in segmentation, ``masks/``.
        score_thr: boxes must score more; None is 0.3. Detection only.
        batch_size: pictures of one size, so that none is padded, that pass the model at once.
        pictures: draw what was predicted.
        device: 'cpu', 'cuda:1'; None: an accelerator, where there is one.
        overwrite: replace the results in ``out``.
        strict: stop at the first file that can't be read, instead of skipping it.
        say: takes a line every ten seconds, where no bar is drawn in a terminal, and the last one.

    Returns:
        How many were predicted, and which files were skipped.

    Raises:
        ValueError: what the config or the model can't serve, a checkpoint that does not fit,
            results in ``out`` already; no file, or with ``strict`` not every file, can be read.
        FileNotFoundError: no such source or checkpoint.
    """
    folder = Path(out)
    scope = _checked_scope(cfg, checkpoint, folder, score_thr, batch_size, overwrite)
    sources = picture_sources(source, without=folder)
    read = Path(source).resolve()
    for results in (folder / 'pictures').resolve(), (folder / 'masks').resolve():
        if results in (read, *read.parents):
            raise ValueError(f'out={str(out)!r}: results would replace the files of '
                             f'source={source!r}, which lie in {results}; give another folder')
    chosen_device = device_of(device)
    init_default_scope(scope)
    reader = PictureReader(cfg)
    model = build_to_predict(cfg)
    names = class_names(cfg, load_all_weights(model, checkpoint))
    predictor = Predictor(model.to(chosen_device), reader, batch_size)
    thr = 0.3 if score_thr is None else score_thr
    artist = PredictionDrawer(cfg, scope, names, thr) if pictures else None
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'predictions.json').unlink(missing_ok=True)
    about = {'task': TASKS[scope], 'config': str(cfg.filename), 'checkpoint': str(checkpoint),
             'classes': names, **({'score_thr': thr} if scope == 'mmdet' else {})}
    number_of = {each.path: i for i, each in enumerate(sources, 1)}
    said, boxes = time.monotonic(), 0
    with PredictionsFile(folder, about) as file, progress_bar() as bar:
        task = bar.add_task('files', total=len(sources), info='')
        skip = _SkippedFiles(file, strict, say)
        for item, sample in predictor(sources, skip):
            try:
                predicted = picture_record(scope, sample, names, thr)
                files = _write_pictures(folder, artist, item, sample,
                                        predicted.masks if scope == 'mmseg' else None)
                file.add({**item.about, **files, **predicted.record()})
                boxes += len(predicted.labels)
            # The error is about numbers that are not finite, or a path that is too long.
            except Exception as error:
                skip(item.source, error)
            done, name = number_of[item.source.path], printable(item.source.file)
            bar.update(task, completed=done, info=name)
            if bar.disable and time.monotonic() > said + 10:
                said = time.monotonic()
                say(f'{done} of {len(sources)} files: {name}')
        if not file.number:
            skip.refuse_if_all_skipped()
    summary = (f', {boxes} objects that score more than {thr:g}' if boxes else
               f': nothing was found that scores more than {thr:g} (--score-thr)')
    least = score_threshold_option(cfg)
    if not boxes and least and least[1] > thr:
        summary += f'; the model drops what scores less than {least[0]}={least[1]:g}'
    say(f'{file.number} image{"s" * (file.number != 1)} predicted{summary * (scope == "mmdet")}')
    return PredictionCounts(file.number, file.skipped)


class _SkippedFiles:
    """Records files that can't be predicted. A full disk ends the run, and so does every such file
    with ``strict``."""

    def __init__(self, file: PredictionsFile, strict: bool, say: Callable[[str], None]) -> None:
        self.file, self.strict, self.say = file, strict, say

    def __call__(self, source: Source, error: Exception) -> None:
        if isinstance(error, OSError) and error.errno in _NO_DISK:
            raise error
        if self.strict:
            raise ValueError(f'{printable(source.path)}: {error_text(error)}') from error
        self.file.skipped.append({'file': source.file, 'reason': error_text(error)})
        self.say(f'skipped {printable(source.path)}: {in_a_line(error)}')

    def refuse_if_all_skipped(self) -> None:
        """Raise ValueError if no file is left."""
        first, *others = self.file.skipped
        more = f' (and {len(others)} more)' if others else ''
        raise ValueError(f'{printable(first["file"])}{more}: {first["reason"]}')


def _predict_batch(model: nn.Module, batch: list[LoadedPicture],
                   skip: Callable[[Source, Exception], None]
                   ) -> Iterator[tuple[LoadedPicture, BaseDataElement]]:
    """Yield the prediction of each item. If the model fails on a batch, its items are tried one by
    one."""
    try:
        with torch.no_grad():
            samples = model.test_step(pseudo_collate([item.packed for item in batch]))
    except Exception as error:
        if len(batch) == 1:
            skip(batch[0].source, error)
        else:
            for item in batch:
                yield from _predict_batch(model, [item], skip)
    else:
        yield from zip(batch, samples, strict=True)


def _checked_scope(cfg: Config, checkpoint: str, folder: Path, score_thr: float | None,
                   batch_size: int, overwrite: bool) -> str:
    """Check the arguments before anything is built."""
    scope = scope_of(cfg)
    check_sections(cfg, ())
    check_num_classes(cfg, ('test',))
    check_enough_queries(cfg)
    check_checkpoint(checkpoint, 'checkpoint')
    check_writable_folder(str(folder), 'out')
    check_score_thr(scope, score_thr)
    check_batch_size(batch_size)
    if (folder / 'predictions.json').exists() and not overwrite:
        raise ValueError(f'out={str(folder)!r} holds predictions.json of another run: give another '
                         'folder, or --overwrite')
    return scope


def check_batch_size(batch_size: int) -> None:
    """Raise ValueError for a batch size below one."""
    if batch_size < 1:
        raise ValueError(f'batch_size={batch_size} must be at least 1')


def check_score_thr(scope: str, score_thr: float | None) -> None:
    """Raise ValueError for a threshold that is no score, or for a task that has no boxes."""
    if score_thr is not None and scope != 'mmdet':
        raise ValueError(f'score_thr={score_thr}: {TASKS[scope]} predicts no boxes; leave it '
                         'out')
    if score_thr is not None and not 0 <= score_thr < 1:
        raise ValueError(f'score_thr={score_thr} must be at least 0 and less than 1')


class PredictionDrawer:
    """Draws predictions on pictures with the visualizer of a config, whose backends are not used.

    Args:
        cfg: whose visualizer draws, without its backends.
        scope: 'mmdet', 'mmseg' or 'mmpretrain'.
        names: of the classes.
        score_thr: of boxes.
    """

    def __init__(self, cfg: Config, scope: str, names: list[str], score_thr: float) -> None:
        self.scope, self.score_thr = scope, score_thr
        self._drawn = np.empty(0)
        options = {'type': VISUALIZERS_OF[scope], **(cfg.get('visualizer') or {}),
                   'name': 'predict', 'vis_backends': None}
        # `_scope_` is written into parts that come from a base config of another library
        # ('mmdet::...').
        with VISUALIZERS.switch_scope_and_registry(options.pop('_scope_', scope)) as registry:
            chosen = registry.get(kind := options.pop('type'))
        if chosen is None:
            raise ValueError(f'visualizer.type={kind!r}: there is no such class')
        # Not built by the registry, which would store it and give it to whoever asks for the newest
        # one.
        self.visualizer = chosen(**options)
        self.visualizer.dataset_meta = {'classes': tuple(names),
                                        'palette': class_colours(cfg, names)}
        # This method would hand the picture to the visualizer's backends.
        self.visualizer.add_image = self._store_drawn

    def _store_drawn(self, name: str, image: np.ndarray, step: int = 0) -> None:
        self._drawn = image

    def draw(self, pixels: np.ndarray, sample: BaseDataElement, *, truth: bool = False
             ) -> np.ndarray:
        """Draw a prediction, or the ground truth, on a picture: (H, W, 3) RGB bytes."""
        draw_sample(self.scope, self.visualizer, 'predict', pixels, sample, truth=truth,
                    predicted=not truth, score_thr=self.score_thr)
        return self._drawn


def _write_pictures(folder: Path, artist: PredictionDrawer | None, item: LoadedPicture,
                    sample: BaseDataElement, labels: np.ndarray | None) -> dict[str, str]:
    """Write the label map and the drawn picture, and return their names for the JSON file."""
    names: dict[str, str] = {}
    if labels is not None:
        names['mask'] = f'masks/{item.source.name}.png'
        write_picture(folder / names['mask'], labels)
    if artist is not None:
        names['picture'] = f'pictures/{item.source.name}.jpg'
        write_picture(folder / names['picture'], artist.draw(item.pixels, sample))
    return names
