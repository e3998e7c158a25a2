"""Predicts picture files and writes what was predicted."""
from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import mmcv
from mmengine.config import Config
from rich.progress import track

from mmposenc.terminal.messages import counted, in_a_line
from mmposenc.writing import (
    building_folder,
    check_new_files,
    is_signed,
    move_files,
    writing_picture,
)

from ..config.parsed import TASKS, ParsedConfig
from .pictures import names_without_suffix, picture_files
from .prediction import Predictor, check_score_thr, load
from .result import Result


def predict_files(cfg: Config, checkpoint: str, source: str, out: str | Path, *,
                  score_thr: float | None = None, pictures: bool = True, device: str | None = None,
                  overwrite: bool = False) -> list[dict[str, str]]:
    """Predicts a picture, or a folder of them, and writes what was predicted.

    Args:
        cfg: a config of mmdet, mmseg or mmpretrain; its test pipeline reads the pictures.
        checkpoint: the weights.
        source: a picture, or a folder with any below.
        out: a folder for ``predictions.json``, ``pictures/`` and, in segmentation, ``masks/``.
        score_thr: boxes must score more; None is 0.3. Detection only.
        pictures: draw what was predicted.
        device: 'cpu', 'cuda:1'; None: an accelerator, where there is one.
        overwrite: replace the results in ``out``, once all new ones are there.

    Returns:
        The files that could not be predicted, each with the reason.

    Raises:
        ValueError: what the config or the model can't serve, a checkpoint that does not fit,
            results in ``out`` already, or files of the user's with their names.
        FileNotFoundError: no such source or checkpoint.
    """
    folder, results = Path(out), Path(out, 'predictions.json')
    parsed = ParsedConfig(cfg)
    check_score_thr(parsed.library, score_thr)
    files = _files_without_results(source, folder)
    names = names_without_suffix(files, source if os.path.isdir(source)
                                 else os.path.dirname(source) or os.curdir)
    replaces = _check_replaces_results_only(
        folder, [*(f'pictures/{name}.jpg' for name in names if pictures),
                 *(f'masks/{name}.png' for name in names if parsed.library == 'mmseg')],
        overwrite, [*files, checkpoint, str(cfg.filename)], parsed.folders_of_data())
    predictor = Predictor(load(cfg, checkpoint, device), score_thr)
    images: list[dict[str, Any]] = []
    skipped: list[dict[str, str]] = []
    with building_folder(results) as new:
        try:
            for file, name in track(list(zip(files, names, strict=True)), 'predicting',
                                    disable=not sys.stdout.isatty()):
                try:
                    result = predictor(file, file)
                except ValueError as error:
                    skipped.append({'file': file, 'reason': str(error)})
                    print(f'skipped {in_a_line(error)}')
                    continue
                images.append({**result.record(), **_write_files(new, name, result, pictures)})
        finally:
            complete = len(images) + len(skipped) == len(files)
            if complete or not replaces:
                about = json.dumps({
                    'task': TASKS[predictor.scope], 'config': str(cfg.filename),
                    'checkpoint': checkpoint,
                    **({'score_thr': predictor.score_thr} if predictor.scope == 'mmdet' else {}),
                    'classes': predictor.classes, 'skipped': skipped, 'complete': complete})
                lines = ',\n'.join(map(json.dumps, images))  # One for each image.
                (new / results.name).write_text(f'{about[:-1]}, "images": [\n{lines}\n]}}\n')
                move_files(new, folder)
    objects = sum(len(image['labels']) for image in images)
    print(f'{counted(len(images), "image")} predicted' + (
        f', {objects} objects that score more than {predictor.score_thr:g} (--score-thr)'
        if predictor.scope == 'mmdet' else ''))
    return skipped


def _check_replaces_results_only(folder: Path, names: list[str], overwrite: bool,
                                 inputs: list[str], data: dict[str, str]) -> bool:
    """Whether results of an earlier call would be replaced.

    Raises:
        ValueError: they may not be, or something else would be replaced.
    """
    results = folder / 'predictions.json'
    check_new_files(folder, [results.name, *names], 'out', inputs=inputs, data=data,
                    ours=lambda path: is_signed(path) or (
                        path == results and b'"complete": ' in path.read_bytes()))
    if results.exists() and not overwrite:
        raise ValueError(f'out={str(folder)!r} holds predictions.json of another run: give another '
                         'folder, or --overwrite')
    return results.exists()


def _files_without_results(source: str, out: Path) -> list[str]:
    """The pictures of the source that are no results of an earlier call.

    Raises:
        ValueError: all of them are.
    """
    written = {(out / 'pictures').resolve(), (out / 'masks').resolve()}
    files = []
    for file in picture_files(source):
        folder = Path(file).parent.resolve()
        if written.isdisjoint((folder, *folder.parents)):
            files.append(file)
    if not files:
        raise ValueError(f'out={str(out)!r}: results would replace the files of source={source!r}, '
                         'which lie in it; give another folder')
    return files


def _write_files(folder: Path, name: str, result: Result, picture: bool) -> dict[str, str]:
    """Write the label map and the drawn picture, and return their names for the JSON file."""
    names = {}
    if result.masks is not None and result.boxes is None:
        names['mask'] = f'masks/{name}.png'
        with writing_picture(folder / names['mask']) as partial:
            mmcv.imwrite(result.masks, str(partial))
    if picture:
        names['picture'] = f'pictures/{name}.jpg'
        result.save(folder / names['picture'])
    return names
