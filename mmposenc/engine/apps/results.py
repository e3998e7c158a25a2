"""Models and predictions in one line of Python: ``mmposenc.load`` and ``mmposenc.predict``."""
from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import matplotlib
import numpy as np
from mmengine.config import Config
from mmengine.logging import print_log
from mmengine.model import BaseModel
from mmengine.registry import init_default_scope
from mmengine.structures import BaseDataElement
from PIL import Image, ImageOps
from torch import nn

from mmposenc.checkpoint import hub
from mmposenc.config_types import ConfigType, ReadOnlyConfig
from mmposenc.terminal.messages import error_text

from ..config.checks import check_checkpoint
from ..config.config import load_config
from ..config.models import build_to_predict, device_of, init_weights_quietly, load_all_weights
from ..config.testing import scope_of
from ..training.checkpoints import latest_checkpoint
from .pictures import PICTURES, Source, picture_sources, write_picture
from .prediction import PictureReader, PredictionDrawer, Predictor, check_score_thr
from .records import class_colours, class_names, picture_record

Picture = str | Path | np.ndarray | Image.Image


def load(model: str | Path | Config | ConfigType, checkpoint: str | Path | None = None,
         device: str | None = 'cpu') -> nn.Module:
    """A detector, segmentor or classifier, ready to predict.

    Args:
        model: a config (a file, ``mmposenc::...``, a ``Config`` or dict), or the folder of a
            training, whose newest checkpoint is taken. A config is a program: it is run.
        checkpoint: the weights, a file or ``hf://owner/name``; None: those of the folder, of a
            config as training starts.
        device: 'cpu', 'cuda:1'; None: an accelerator, where there is one.

    Returns:
        The model in eval mode, with ``cfg`` and ``dataset_meta`` (classes and palette), as mmdet's
        ``init_detector`` gives it.

    Raises:
        FileNotFoundError: no such config, folder or checkpoint.
        ValueError: they do not fit each other, a folder is none of a training, or ``model`` is a
            name of weights.
    """
    chosen_device = device_of(device)
    if isinstance(model, (dict, Config)):
        cfg = model if isinstance(model, Config) else Config(model)
    elif hub.is_hub_name(model):
        raise ValueError(f'model={str(model)!r} names weights, and a config is required too: '
                         f'load(CONFIG, {str(model)!r})')
    elif Path(model).is_dir():
        config, newest = _config_and_checkpoint(Path(model))
        cfg, checkpoint = load_config(config), checkpoint or newest
    else:
        cfg = load_config(str(model))
    meta: ReadOnlyConfig = {}
    if checkpoint is not None:
        check_checkpoint(str(checkpoint), 'checkpoint')
    built: BaseModel = build_to_predict(cfg)
    if checkpoint is None:
        init_weights_quietly(built)
        print_log('checkpoint=None: the model has the weights that training starts with; its '
                  'predictions mean nothing yet', 'current', logging.WARNING)
    else:
        meta = load_all_weights(built, str(checkpoint))
    names = class_names(cfg, meta)
    built.cfg, built.dataset_meta = cfg, {'classes': tuple(names),
                                          'palette': class_colours(cfg, names)}
    return built.to(chosen_device).eval()


def _config_and_checkpoint(folder: Path) -> tuple[str, str]:
    """The config and the newest checkpoint in the folder of a training."""
    configs, newest = sorted(folder.glob('*.py')), latest_checkpoint(folder)
    if len(configs) != 1 or newest is None:
        raise ValueError(f'{str(folder)!r} is no folder of a training: it has {len(configs)} '
                         f'configs (*.py) and {"no" if newest is None else "a"} checkpoint; name '
                         f'both: load(CONFIG, CHECKPOINT)')
    return str(configs[0]), newest


def predict(model: nn.Module | str | Path | Config | ConfigType,
            pictures: Picture | Sequence[Picture], checkpoint: str | Path | None = None, *,
            device: str | None = 'cpu', score_thr: float | None = None, batch_size: int = 1
            ) -> Result | list[Result]:
    """Predictions of a model for pictures.

    ``mmposenc predict`` does the same for folders of any size, and leaves files.

    Args:
        model: of :func:`load`, or what :func:`load` takes.
        pictures: a file; RGB or grey bytes, (H, W, 3) or (H, W); a picture of PIL; a folder; or a
            list of these.
        checkpoint, device: as :func:`load` takes them, where ``model`` is none yet.
        score_thr: boxes must score more; None is 0.3. Detection only.
        batch_size: pictures of one size that pass the model at once.

    Returns:
        A :class:`Result` of one picture; of a folder or a list a list of them.

    Raises:
        FileNotFoundError: no such file or folder.
        ValueError: a folder without pictures, a file that can't be read, an array that is no
            picture, or a threshold that the model has no boxes for.
    """
    if not isinstance(model, nn.Module):
        model = load(model, checkpoint, device)
    cfg, meta = getattr(model, 'cfg', None), getattr(model, 'dataset_meta', None)
    if cfg is None or not meta:
        raise ValueError(f'model={type(model).__name__} has no cfg and dataset_meta, which say how '
                         f'pictures are read and what classes are called; make it with '
                         f'mmposenc.load(CONFIG, CHECKPOINT)')
    check_score_thr(scope := scope_of(cfg), score_thr)
    init_default_scope(scope)
    many = isinstance(pictures, (list, tuple))
    sources = [source for number, each in enumerate(pictures if many else [pictures])
               for source in _picture_sources(each, number)]
    thr, names = 0.3 if score_thr is None else score_thr, list(meta['classes'])
    artist = PredictionDrawer(cfg, scope, names, thr)
    predictor = Predictor(model, PictureReader(cfg), batch_size)
    results = [Result(item.about['file'], item.pixels, sample, names, artist)
               for item, sample in predictor(sources, _raise_for_unreadable)]
    folder = not many and isinstance(pictures, (str, Path)) and Path(pictures).is_dir()
    return results if many or folder else results[0]


def _picture_sources(picture: object, number: int) -> list[Source]:
    if isinstance(picture, (str, Path)):
        return picture_sources(str(picture))
    if isinstance(picture, Image.Image):
        turned = ImageOps.exif_transpose(picture)
        picture = np.asarray(turned if turned.mode == 'L' else turned.convert('RGB'))
    shape = getattr(picture, 'shape', ())
    if (getattr(picture, 'dtype', None) != np.uint8 or 0 in shape
            or len(shape) not in (2, 3) or shape[2:] not in ((), (1,), (3,), (4,))):
        what = (f'an array {shape} of {picture.dtype}' if isinstance(picture, np.ndarray)
                else repr(picture))
        raise ValueError(f'pictures[{number}]: {what} is no picture; give a file, a picture of '
                         f'PIL, or an array of uint8, (H, W) or RGB (H, W, 3)')
    name, picture = f'picture {number}', picture[..., 0] if shape[2:] == (1,) else picture
    return [Source(Path(name), name, name, picture)]


def _raise_for_unreadable(source: Source, error: Exception) -> NoReturn:
    raise ValueError(f'{source.path}: {error_text(error)}') from error


class Result:
    """What was predicted for a picture.

    Attributes:
        file: its name, below the folder that was read.
        picture: (H, W, 3) RGB bytes.
        classes: labels (N,), as integers: of boxes; of segmentation those that cover the picture,
            the largest first; of classification the five best.
        names: what these N are called.
        scores: (N,) of boxes and classes; the share of the picture that each class covers.
        boxes: (N, 4) left, top, right, bottom in pixels; None but in detection.
        masks: of objects (N, H, W), true inside; of segmentation the label map (H, W), integers;
            else None.
    """

    def __init__(self, file: str, picture: np.ndarray, sample: BaseDataElement, names: list[str],
                 artist: PredictionDrawer) -> None:
        self.file, self.picture = file, picture
        self._sample, self._artist = sample, artist
        predicted = picture_record(artist.scope, sample, names, artist.score_thr)
        self.classes, self.names = predicted.labels.astype(np.int64), predicted.names
        self.scores = predicted.scores.astype(np.float32)
        self.boxes, self.masks = predicted.boxes, predicted.masks

    def draw(self) -> np.ndarray:
        """Draw the prediction on the picture with the library's visualizer: (H, W, 3) RGB bytes."""
        return self._artist.draw(self.picture, self._sample)

    def save(self, path: str | Path) -> Path:
        """Write the drawn picture; the file's ending gives the format.

        Raises:
            ValueError: another ending than those of pictures.
        """
        path = Path(path)
        if path.suffix.lower() not in PICTURES:
            raise ValueError(f'path={str(path)!r} must end in one of {", ".join(PICTURES)}')
        write_picture(path, self.draw())
        return path

    def show(self) -> object:
        """Show the drawn picture in a window, or in a notebook.

        Raises:
            RuntimeError: there is no display.
        """
        backend = matplotlib.get_backend().lower()
        if backend == 'agg':
            raise RuntimeError('there is no display to show a picture on; use .save(PATH)')
        return self._artist.visualizer.show(self.draw(), self.file)

    def _repr_png_(self) -> bytes | None:
        """Give a notebook the drawn picture when a result is the last line of a cell."""
        data: bytes | None = Image.fromarray(self.draw())._repr_png_()
        return data

    def __len__(self) -> int:
        return len(self.classes)

    def __repr__(self) -> str:
        parts = [f'{name} {score:.2f}' for name, score in zip(self.names, self.scores, strict=True)]
        more = f', and {len(parts) - 5} more' if len(parts) > 5 else ''
        return f'Result({self.file}: {", ".join(parts[:5]) or "nothing"}{more})'
