"""What is made once an encoding, with its first trained model: costs, pictures, figures, diagnosis.

None of it may end a study: what can't be made leaves a note for the report.
"""
from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mmengine.config import Config

from mmposenc.command_line import describe

from ..engine.complexity import count, measure_time
from ..engine.devices import device_of
from .encodings import Entry, apply
from .sizes import resized, tested_size
from .study import Run, Study, read_json, write_json

#: The files of them, by their names, in the folder of an encoding's first run.
EXTRAS = ('costs', 'pictures', 'figures', 'diagnosis')


def make_extras(study: Study, run: Run, checkpoint: str) -> None:
    """Makes what is missing of the extras of an encoding, each in a file of the run's folder.

    Args:
        study, run: which; the encoding's first run.
        checkpoint: the trained weights.
    """
    base = study.base()
    for name, depends, make in (
            ('costs', study.sizes, lambda: costs(base, run.entry, study.sizes)),
            ('pictures', study.pictures, lambda: _pictures(study, run, checkpoint)),
            ('figures', 'figures' in study.extras, lambda: _figures(study, run, checkpoint)),
            ('diagnosis', 'diagnosis' in study.extras, lambda: _diagnosis(study, run,
                                                                          checkpoint))):
        _make(run.folder / f'{name}.json', depends, make)


def _make(path: Path, depends: Any, make: Callable[[], Any]) -> None:
    """Writes what ``make`` gives, unless it is there and was made for the same."""
    depends = list(depends) if isinstance(depends, tuple) else depends
    if (read_json(path) or {'for': None})['for'] == depends or not depends:
        return
    try:
        content, note = make(), ''
    except Exception as error:
        traceback.print_exc()
        content, note = None, f'no {path.stem}: {describe(error)}'
    write_json(path, {'for': depends, 'content': content, 'note': note})


def costs(base: Config, entry: Entry, factors: tuple[float, ...]) -> list[dict[str, Any]]:
    """Parameters, multiply-accumulates and activations of the model at every size.

    Args:
        base: the study's config.
        entry: the encoding.
        factors: of the trained size.
    """
    cfg, found = apply(base, entry), []
    for factor in factors:
        size = input_size(cfg, factor)
        told: dict[str, Any] = {'factor': factor, 'hw': size, 'parameters': None, 'macs': None,
                                'activations': None}
        if size is not None:
            whole = count(cfg, size).parts[0]
            told.update(parameters=whole.parameters, macs=whole.macs,
                        activations=whole.activations)
        found.append(told)
    return found


def input_size(cfg: Config, factor: float) -> tuple[int, int] | None:
    """(H, W) of what the model gets at a factor, filled up as its preprocessor does; None where
    images are taken as they are."""
    size = tested_size(resized(cfg, factor))
    if size is None:
        return None
    preprocessor = cfg.model.get('data_preprocessor') or cfg.get('data_preprocessor') or {}
    step = preprocessor.get('pad_size_divisor') or 1
    return -(-size[0] // step) * step, -(-size[1] // step) * step


def time_models(study: Study) -> None:
    """Times a pass of every encoding at every size, one after the other in this process; nothing
    else should run on the machine."""
    place, base = device_of(None), study.base()
    for run in study.runs():
        if not run.first:
            continue
        cfg, found = apply(base, run.entry), []
        for factor in study.sizes:
            size = input_size(cfg, factor)
            if size is not None:
                timing = measure_time(cfg, size, place)
                found.append({'factor': factor, 'seconds': timing.seconds,
                              'peak_bytes': timing.peak_bytes})
        write_json(run.folder / 'times.json', found)


def _pictures(study: Study, run: Run, checkpoint: str) -> Any:
    from .pictures import draw_predictions
    return draw_predictions(apply(study.base(), run.entry), checkpoint, study.pictures,
                            study.folder, run.entry.slug)


def _figures(study: Study, run: Run, checkpoint: str) -> Any:
    from ..engine import encoding_figures
    folder = study.folder / 'figures' / run.entry.slug
    folder.mkdir(parents=True, exist_ok=True)
    made = encoding_figures.figures_of(apply(study.base(), run.entry), checkpoint, folder)
    return [{**each, 'file': os.path.relpath(folder / Path(each['file']).relative_to(
        folder if Path(each['file']).is_absolute() else '.'), study.folder)} for each in made]


def _diagnosis(study: Study, run: Run, checkpoint: str) -> Any:
    from ..engine.diagnosis import diagnose_config
    return diagnose_config(apply(study.base(), run.entry), checkpoint)
