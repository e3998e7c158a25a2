"""What a trained model predicts for some test images, beside the truth."""
from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.registry import init_default_scope

from mmposenc.engine.apps.pictures import rgb_bytes, write_picture
from mmposenc.engine.apps.prediction import Artist
from mmposenc.engine.apps.records import class_names, record_of
from mmposenc.engine.config.models import build_model, device_of, load_weights
from mmposenc.engine.config.nodes import build_data_set
from mmposenc.engine.config.testing import scope_of

#: Boxes must score more to be drawn, and pictures are not longer.
_SCORE, _LONGEST = 0.3, 640


def draw_predictions(cfg: Config, checkpoint: str, number: int, folder: Path, name: str
                     ) -> list[dict[str, Any]]:
    """Draws the predictions of a model for test images, spread evenly over the test set.

    Args:
        cfg: whose test set and model.
        checkpoint: the weights.
        number: of images.
        folder: of the study; pictures go to ``pictures/`` in it.
        name: of the encoding, as a part of file names.

    Returns:
        For each image its id, title and source, and file (from ``folder``) and text of the truth
        and of what was predicted.
    """
    scope, place = scope_of(cfg), device_of(None)
    dataset = test_set(cfg)
    model: Any = build_model(cfg)
    names = class_names(cfg, load_weights(model, checkpoint))
    model.to(place).eval()
    artist = Artist(cfg, scope, names, _SCORE)
    total, made = min(number, len(dataset)), []
    for index in (i * len(dataset) // total for i in range(total)):
        with torch.no_grad():
            sample = model.test_step(pseudo_collate([dataset[index]]))[0].cpu()
        pixels, source = original(dataset, index)
        key = f'image{index}'
        told: dict[str, Any] = {'id': key, 'title': source or f'test image {index}'}
        told['source'] = told['title']
        for what, suffix, words in (('truth', 'truth', truth_text), ('predicted', name,
                                                                     predicted_text)):
            path = folder / 'pictures' / f'{key}_{suffix}.jpg'
            # A class is told by its words: written on a small picture it would cover it.
            drawn = pixels if scope == 'mmpretrain' else artist.draw(
                pixels, sample, truth=what == 'truth')
            write_picture(path, _shrunk(drawn))
            told[what] = {'file': str(path.relative_to(folder)),
                          'text': words(scope, sample, names)}
        made.append(told)
    return made


def test_set(cfg: Config) -> Any:
    """The data set of a config's test."""
    init_default_scope(scope_of(cfg))
    return build_data_set(cfg.test_dataloader.dataset)


def original(dataset: Any, index: int) -> tuple[np.ndarray, str]:
    """(H, W, 3) RGB bytes of an image of a data set before its pipeline changes it, and its file.

    Raises:
        ValueError: no step of the pipeline loads an image.
    """
    info = dataset.get_data_info(index)
    steps = iter(getattr(dataset.pipeline, 'transforms', ()))
    while 'img' not in info:
        step = next(steps, None)
        if step is None:
            raise ValueError('no step of the test pipeline loads an image')
        info = step(info)
    return rgb_bytes(np.asarray(info['img'])), Path(info.get('img_path') or '').name


def predicted_text(scope: str, sample: Any, names: list[str]) -> str:
    """What was predicted, in words."""
    record, _ = record_of(scope, sample, names, _SCORE)
    if 'classes' in record:
        best = record['classes'][0]
        return f'{best["name"]} ({best["score"]:.0%})'
    if 'areas' in record:
        return _areas({each['name']: each['share'] for each in record['areas']})
    return _objects([each['name'] for each in record['objects']])


def truth_text(scope: str, sample: Any, names: list[str]) -> str:
    """What is there, in words; empty where the test set does not say."""
    if scope == 'mmpretrain':
        return ', '.join(names[int(label)] for label in sample.get('gt_label', []))
    if scope == 'mmseg':
        if 'gt_sem_seg' not in sample:
            return ''
        found, counts = np.unique(sample.gt_sem_seg.data.numpy(), return_counts=True)
        return _areas({names[label]: count / counts.sum() for label, count in
                       sorted(zip(found, counts, strict=True), key=lambda pair: -pair[1])
                       if label < len(names)})
    if 'gt_instances' not in sample:
        return ''
    return _objects([names[int(label)] for label in sample.gt_instances.labels])


def _objects(found: list[str]) -> str:
    counts = sorted(Counter(found).items())
    return ', '.join(f'{count} {name}' for name, count in counts) or 'no objects'


def _areas(shares: dict[str, float]) -> str:
    return ', '.join(f'{name} {share:.0%}' for name, share in list(shares.items())[:5])


def _shrunk(pixels: np.ndarray) -> np.ndarray:
    scale = _LONGEST / max(pixels.shape[:2])
    if scale >= 1:
        return pixels
    size = tuple(max(1, round(side * scale)) for side in pixels.shape[1::-1])
    return cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
