"""Predictions on pictures that belong to no data set: the test pipeline without annotations."""
from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.registry import VISUALIZERS, init_default_scope
from torch import nn

from mmposenc.command_line import describe

from .arguments import check_arguments
from .checks import check_checkpoint, check_folder, check_num_classes, check_sections
from .class_names import class_names, palette
from .devices import device_of
from .drawing import KeepPicture, draw
from .models import build_model, load_weights
from .pictures import Source, VideoWriter, find_sources, write_picture
from .reading import Item, Reader, batches
from .records import PredictionsFile, record_of
from .testing import TASKS, VISUALIZERS_OF, scope_of

#: Errors of a disk that no further file can be written to.
_NO_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class Prediction(NamedTuple):
    """How many pictures and frames were predicted, and the files that could not be read."""

    done: int
    skipped: list[dict[str, str]]


def predict(cfg: Config, checkpoint: str, source: str, out: str | Path, *,
            score_thr: float | None = None, batch_size: int = 1, pictures: bool = True,
            device: str | None = None, overwrite: bool = False, strict: bool = False,
            started: Callable[[], None] = lambda: None,
            say: Callable[[str], None] = print) -> Prediction:
    """Predicts pictures, folders of them or videos, and writes what was predicted.

    Args:
        cfg: a config of mmdet, mmseg or mmpretrain; its test pipeline reads the pictures.
        checkpoint: the weights.
        source: a picture, a video, or a folder with any of them below.
        out: a folder for ``predictions.json``, ``pictures/`` and, in segmentation, ``masks/``.
        score_thr: boxes must score more; None is 0.3. Detection only.
        batch_size: pictures that pass through the model at once; those of one batch have one size,
            so that none is padded for another's sake.
        pictures: draw what was predicted.
        device: 'cpu', 'cuda:1'; None: an accelerator, where there is one.
        overwrite: replace the results in ``out``.
        strict: stop at the first file that can't be read, instead of passing it over.
        started: called when everything is built and loaded.
        say: takes a line about every second.

    Returns:
        How many were predicted, and which files were passed over.

    Raises:
        ValueError: what the config or the model can't serve, a checkpoint that does not fit,
            results in ``out`` already; no file that can be predicted; with ``strict``, the first
            that can't.
        FileNotFoundError: no such source or checkpoint.
    """
    folder = Path(out)
    scope = _check(cfg, checkpoint, folder, score_thr, batch_size, overwrite)
    sources = find_sources(source, without=folder)
    place = device_of(device)
    init_default_scope(scope)
    reader = Reader(cfg)
    model = build_model(cfg)
    names = class_names(cfg, load_weights(model, checkpoint))
    model.to(place).eval()
    thr = 0.3 if score_thr is None else score_thr
    artist = Artist(cfg, scope, names, thr) if pictures else None
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'predictions.json').unlink(missing_ok=True)
    about = {'task': TASKS[scope], 'config': str(cfg.filename), 'checkpoint': str(checkpoint),
             'classes': names, **({'score_thr': thr} if scope == 'mmdet' else {})}
    progress = _Progress(sources, say)
    started()
    with PredictionsFile(folder, about) as file, _Outputs(folder, artist) as outputs:
        def passed_over(each: Source, error: Exception) -> None:
            if isinstance(error, OSError) and error.errno in _NO_DISK:
                raise error
            if strict:
                raise ValueError(f'{each.path}: {describe(error)}') from error
            if not file.skipped or file.skipped[-1]['file'] != each.file:  # once of a video
                file.skipped.append({'file': each.file, 'reason': describe(error)})
                say(f'skipped {each.path}: {describe(error)}')

        for batch in batches(reader.items(sources, passed_over), batch_size):
            for item, sample in _predicted(model, batch, passed_over):
                try:
                    sample = sample.cpu()
                    record, labels = record_of(scope, sample, names, thr)
                    file.add({**item.about, **outputs.write(item, sample, labels), **record})
                except Exception as error:  # numbers that are not finite, a path that is too long
                    passed_over(item.source, error)
            progress.done(batch[-1].source, len(batch))
        if not file.number:
            first, more = file.skipped[0], f' (and {len(file.skipped) - 1} more)'
            raise ValueError(f'{first["file"]}{more * (len(file.skipped) > 1)}: {first["reason"]}')
    return Prediction(file.number, file.skipped)


def _predicted(model: nn.Module, batch: list[Item],
               passed_over: Callable[[Source, Exception], None]) -> Iterator[tuple[Item, Any]]:
    """What the model makes of each item; where it fails for all at once, of each alone."""
    try:
        with torch.no_grad():
            samples = model.test_step(pseudo_collate([item.packed for item in batch]))
    except Exception as error:
        if len(batch) == 1:
            passed_over(batch[0].source, error)
        else:
            for item in batch:
                yield from _predicted(model, [item], passed_over)
    else:
        yield from zip(batch, samples, strict=True)


def _check(cfg: Config, checkpoint: str, folder: Path, score_thr: float | None, batch_size: int,
           overwrite: bool) -> str:
    """All that can be told before anything is built."""
    scope = scope_of(cfg)
    check_sections(cfg, ())
    if not (cfg.get('test_dataloader') or {}).get('dataset'):
        raise ValueError('the config has no test_dataloader.dataset, whose pipeline says how '
                         'pictures are read')
    check_arguments(cfg, ('test',))
    check_num_classes(cfg, ('test',))
    check_checkpoint(checkpoint, 'checkpoint')
    check_folder(str(folder), 'out')
    if score_thr is not None and scope != 'mmdet':
        raise ValueError(f'score_thr={score_thr}: {TASKS[scope]} predicts no boxes, which it is '
                         'for')
    if score_thr is not None and not 0 <= score_thr < 1:
        raise ValueError(f'score_thr={score_thr} must be at least 0 and less than 1')
    if batch_size < 1:
        raise ValueError(f'batch_size={batch_size} must be at least 1')
    if (folder / 'predictions.json').exists() and not overwrite:
        raise ValueError(f'out={str(folder)!r} holds predictions.json of another run: give another '
                         'folder, or --overwrite')
    return scope


class Artist:
    """Pictures with what was predicted on them.

    Args:
        cfg: whose visualizer draws, without its backends.
        scope: 'mmdet', 'mmseg' or 'mmpretrain'.
        names: of the classes.
        score_thr: of boxes.
    """

    def __init__(self, cfg: Config, scope: str, names: list[str], score_thr: float) -> None:
        self.scope, self.score_thr, self.kept = scope, score_thr, KeepPicture()
        options = {'type': VISUALIZERS_OF[scope], **(cfg.get('visualizer') or {}),
                   'name': 'predict', 'vis_backends': [self.kept]}
        # `_scope_` is written into what comes from a base of another library ('mmdet::...').
        with VISUALIZERS.switch_scope_and_registry(options.pop('_scope_', scope)) as registry:
            chosen = registry.get(options.pop('type'))
        # Not built: the registry would keep it, and give it to whoever asks for the newest.
        self.visualizer = chosen(**options)
        self.visualizer.dataset_meta = {'classes': tuple(names), 'palette': palette(cfg, names)}

    def draw(self, pixels: np.ndarray, sample: Any, *, truth: bool = False) -> np.ndarray:
        """(H, W, 3) RGB bytes with what was predicted, or with the truth."""
        draw(self.scope, self.visualizer, 'predict', pixels, sample, truth=truth,
             predicted=not truth, score_thr=self.score_thr)
        assert self.kept.picture is not None
        return self.kept.picture


class _Outputs:
    """The files beside predictions.json; a video is ended when the next file begins."""

    def __init__(self, folder: Path, artist: Artist | None) -> None:
        self.folder, self.artist = folder, artist
        self.video: VideoWriter | None = None

    def write(self, item: Item, sample: Any, labels: np.ndarray | None) -> dict[str, str]:
        """Writes what belongs to one picture or frame; returns its files for json."""
        names: dict[str, str] = {}
        if labels is not None:
            frame = f'/{item.about["frame"]:06d}' if item.source.is_video else ''
            names['mask'] = f'masks/{item.source.name}{frame}.png'
            write_picture(self.folder / names['mask'], labels)
        if self.artist is None:
            return names
        drawn = self.artist.draw(item.pixels, sample)
        if not item.source.is_video:
            names['picture'] = f'pictures/{item.source.name}.jpg'
            write_picture(self.folder / names['picture'], drawn)
            return names
        names['picture'] = f'pictures/{item.source.name}.mp4'
        path = self.folder / names['picture']
        if self.video is None or self.video.path != path:
            self._end()
            self.video = VideoWriter(path, item.rate)
        self.video.add(drawn)
        return names

    def _end(self, keep: bool = True) -> None:
        if self.video is not None:
            self.video.close(keep=keep)
        self.video = None

    def __enter__(self) -> _Outputs:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(keep=kind is None)


class _Progress:
    """About a line a second: how far, which file, and how fast."""

    def __init__(self, sources: list[Source], say: Callable[[str], None]) -> None:
        self.say, self.number = say, 0
        self.place = {source.path: i for i, source in enumerate(sources, 1)}
        self.start = self.last = time.monotonic()

    def done(self, source: Source, number: int) -> None:
        """Counts pictures or frames that were predicted."""
        self.number += number
        now = time.monotonic()
        if now - self.last >= 1:
            self.last = now
            self.say(f'{self.place[source.path]} of {len(self.place)} files: {source.file}, '
                     f'{self.number / (now - self.start):.2f} images/s')
