"""Predicts pictures that belong to no data set: ``mmposenc.load`` and ``mmposenc.predict``."""
from __future__ import annotations

import logging
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose, pseudo_collate
from mmengine.logging import print_log
from mmengine.registry import TRANSFORMS, init_default_scope
from torch import nn

from mmposenc.checkpoint import hub
from mmposenc.config_types import ConfigType, ReadOnlyConfig

from ...terminal.messages import error_text
from ..config.checks import (
    check_checkpoint,
    check_enough_queries,
    check_num_classes,
    check_sections,
    check_trained_classes,
)
from ..config.config import load_config
from ..config.data import random_colours
from ..config.models import build_to_predict, device_of, init_weights_quietly, load_all_weights
from ..config.nodes import type_name, type_without_library
from ..config.parsed import TASKS, ParsedConfig, metainfo_entry, num_classes_of
from .pictures import picture_files, rgb_bytes_of_loaded, visualizer_of
from .result import Result

Picture = str | Path | np.ndarray


def load(model: str | Path | Config | ConfigType, checkpoint: str | Path | None = None,
         device: str | None = 'cpu') -> nn.Module:
    """A detector, segmentor or classifier, ready to predict.

    Args:
        model: a config: a file, ``mmposenc::...``, a ``Config`` or dict. A config is a program:
            it is run.
        checkpoint: the weights, a file or ``hf://owner/name``; None: those with which training
            starts.
        device: 'cpu', 'cuda:1'; None: an accelerator, where there is one.

    Returns:
        The model in eval mode, with ``cfg`` and ``dataset_meta`` (classes and palette), as mmdet's
        ``init_detector`` gives it.

    Raises:
        FileNotFoundError: no such config or checkpoint.
        ValueError: they do not fit each other, or ``model`` is a name of weights.
    """
    chosen_device = device_of(device)
    if isinstance(model, (dict, Config)):
        cfg = model if isinstance(model, Config) else Config(model)
    elif hub.is_hub_name(model):
        raise ValueError(f'model={str(model)!r} names weights, and a config is required too: '
                         f'load(CONFIG, {str(model)!r})')
    else:
        cfg = load_config(str(model))
    parsed = ParsedConfig(cfg)
    check_sections(parsed, ())
    check_num_classes(parsed, ('test',))
    check_enough_queries(parsed)
    if checkpoint is not None:
        check_checkpoint(str(checkpoint), 'checkpoint')
    built: Any = build_to_predict(cfg)
    meta: ReadOnlyConfig = {}
    if checkpoint is None:
        init_weights_quietly(built)
        print_log('checkpoint=None: the model has the weights that training starts with; its '
                  'predictions mean nothing yet', 'current', logging.WARNING)
    else:
        meta = load_all_weights(built, str(checkpoint))
    names, colours = names_and_colours(parsed, meta)
    built.cfg, built.dataset_meta = cfg, {'classes': tuple(names), 'palette': colours}
    return built.to(chosen_device).eval()


def names_and_colours(parsed: ParsedConfig, meta: ReadOnlyConfig
                      ) -> tuple[list[str], list[tuple[int, ...]]]:
    """The names and RGB colours of classes: those of the config's test data, else of its type, else
    of the checkpoint.

    Args:
        parsed: the whole config.
        meta: what a checkpoint says of itself; trainings leave the classes of their data in it.

    Returns:
        As many as the model has classes. Those that nothing names are 'class 7'; where not all have
        a colour, all have random ones, which are always the same.

    Raises:
        ValueError: the config has no test data, or its classes in another order than the
            checkpoint's training.
    """
    if not parsed.data_sets('test'):
        raise ValueError('the config has no test_dataloader.dataset, whose pipeline says how '
                         'pictures are read')
    metainfo = {key: [value for node in parsed.data_sets('test').values()
                      if (value := metainfo_entry(node, parsed.library, key))]
                for key in ('classes', 'palette')}
    check_trained_classes(meta, [*metainfo['classes'], ()][0], 'the checkpoint')
    of_checkpoint = (meta.get('dataset_meta') or {}).get('classes') or ()
    names = [str(name) for name in [*metainfo['classes'], of_checkpoint][0]]
    number = max([len(names), *(num_classes_of(head) or 0 for head in parsed.heads.values())])
    names += [f'class {i}' for i in range(len(names), number)]
    random = random_colours(number)
    palette = [*metainfo['palette'], random][0]
    if len(palette) != number:
        palette = random
    return names, [tuple(colour) for colour in palette]


def predict(model: nn.Module, pictures: Picture | Sequence[Picture], *,
            score_thr: float | None = None) -> Result | list[Result]:
    """Predictions of a model for pictures.

    ``mmposenc predict`` does the same for folders of any size, and leaves files.

    Args:
        model: what :func:`load` returned.
        pictures: a file; RGB or grey bytes, (H, W, 3) or (H, W); a folder; or a list of these.
        score_thr: boxes must score more; None is 0.3. Detection only.

    Returns:
        A :class:`Result` of one picture; of a folder or a list a list of them.

    Raises:
        FileNotFoundError: no such file or folder.
        ValueError: a folder without pictures, a file that can't be read, an array that is no
            picture, or a threshold that the model has no boxes for.
    """
    predictor = Predictor(model, score_thr)
    many = isinstance(pictures, (list, tuple))
    results = []
    for number, each in enumerate(pictures if many else [pictures]):
        if isinstance(each, (str, Path)):
            many = many or Path(each).is_dir()
            results += [predictor(file, file) for file in picture_files(each)]
        else:
            results.append(predictor(each, f'pictures[{number}]'))
    return results if many else results[0]


class Predictor:
    """A model together with the steps of its config's own test pipeline.

    Args:
        model: what :func:`load` returned; it is set to eval mode.
        score_thr: boxes must score more; None is 0.3. Detection only.

    Raises:
        ValueError: the model is none of :func:`load`; its pipeline reads pictures in another way
            than from files; a threshold that is no score, or for a model without boxes.
    """

    def __init__(self, model: nn.Module, score_thr: float | None = None) -> None:
        cfg, meta = getattr(model, 'cfg', None), getattr(model, 'dataset_meta', None)
        if cfg is None or not meta:
            raise ValueError(f'model={type(model).__name__} has no cfg and dataset_meta, which say '
                             'how pictures are read and what classes are called; make it with '
                             'mmposenc.load(CONFIG, CHECKPOINT)')
        parsed = ParsedConfig(cfg)
        self.model, self.scope = model.eval(), parsed.library
        check_score_thr(self.scope, score_thr)
        self.score_thr = 0.3 if score_thr is None else score_thr
        init_default_scope(self.scope)
        self.classes = list(meta['classes'])
        self.visualizer = visualizer_of(self.scope, meta)
        steps = [step for step in deepcopy(parsed.pipeline('test'))
                 if 'Annotation' not in type_name(step)]
        if not steps or type_without_library(steps[0]) != 'LoadImageFromFile':
            begins = repr(steps[0]['type']) if steps else 'nothing'
            raise ValueError(f'the test pipeline begins with {begins}: predict reads pictures by '
                             'LoadImageFromFile')
        # This project's class refuses truncated files, and reads the same pixels of whole ones.
        self.load = TRANSFORMS.build({**steps[0], 'type': 'mmposenc.LoadImageFromFile',
                                      'ignore_empty': False})
        self.steps = Compose(steps[1:])

    def __call__(self, picture: str | np.ndarray, name: str) -> Result:
        """Predict a picture: a file, or RGB or grey bytes, (H, W, 3) or (H, W).

        Raises:
            ValueError: the file can't be read, or the model can't take it.
        """
        try:
            loaded = (self.load({'img_path': picture, 'img_id': 0}) if isinstance(picture, str)
                      else self._loaded_from_memory(picture))
            pixels = rgb_bytes_of_loaded(loaded['img'])
            with torch.no_grad():
                sample, = self.model.test_step(pseudo_collate([self.steps(loaded)]))
            return Result(name, pixels, sample.cpu(), self.scope, self.score_thr, self.visualizer)
        except Exception as error:  # Decoders, transforms and models may raise anything.
            raise ValueError(f'{name}: {error_text(error)}') from error

    def _loaded_from_memory(self, pixels: np.ndarray) -> dict[str, Any]:
        """What the first step of the pipeline would return for a file with these pixels."""
        shape, dtype = getattr(pixels, 'shape', ()), getattr(pixels, 'dtype', None)
        if dtype != np.uint8 or 0 in shape or len(shape) not in (2, 3) or shape[2:] not in (
                (), (3,)):
            raise ValueError(f'{type(pixels).__name__} {shape} of {dtype} is no picture; give a '
                             'file, or an array of uint8, (H, W) or RGB (H, W, 3)')
        image = cv2.cvtColor(pixels, cv2.COLOR_GRAY2BGR if len(shape) == 2 else cv2.COLOR_RGB2BGR)
        if self.load.color_type == 'grayscale':
            image = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
        if self.load.to_float32:
            image = image.astype(np.float32)
        return {'img_path': '', 'img_id': 0, 'img': image, 'img_shape': shape[:2],
                'ori_shape': shape[:2]}


def check_score_thr(scope: str, score_thr: float | None) -> None:
    """Raise ValueError for a threshold that is no score, or for a task that has no boxes."""
    if score_thr is not None and scope != 'mmdet':
        raise ValueError(f'score_thr={score_thr}: {TASKS[scope]} predicts no boxes; leave it '
                         'out')
    if score_thr is not None and not 0 <= score_thr < 1:
        raise ValueError(f'score_thr={score_thr} must be at least 0 and less than 1')
