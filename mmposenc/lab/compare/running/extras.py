"""What is made once an encoding, with its first trained model: costs, pictures, figures, diagnosis.

None of it may end a study: what can't be made leaves a note for the report.
"""
from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mmengine.config import Config

from mmposenc.command_line import in_a_line
from mmposenc.engine.apps.complexity import count, measure_time
from mmposenc.engine.apps.pictures import write_picture
from mmposenc.engine.config.models import device_of, own_preprocessor
from mmposenc.engine.config.nodes import tested_size
from mmposenc.lab.diagnose.config_models import diagnose_config

from ..study.applying import apply
from ..study.encodings import Entry
from ..study.files import read_json, write_json
from ..study.sizes import resized
from ..study.study import Run, Study
from .pictures import draw_predictions, original, test_set


def wanted(study: Study) -> dict[str, Any]:
    """The extras that a study wants, and what each of them depends on."""
    found = {'costs': list(study.sizes), 'pictures': study.pictures,
             'figures': 'figures' in study.extras, 'diagnosis': 'diagnosis' in study.extras}
    return {name: depends for name, depends in found.items() if depends}


def missing(study: Study, run: Run) -> list[str]:
    """The extras of an encoding that are wanted and not there, or could not be made so far."""
    held = {name: read_json(run.folder / f'{name}.json') or {} for name in wanted(study)}
    return [name for name, depends in wanted(study).items()
            if held[name].get('for') != depends or held[name].get('note')]


def make_extras(study: Study, run: Run, checkpoint: str | None) -> None:
    """Makes what is missing of the extras of an encoding, each in a file of the run's folder.

    Args:
        study, run: which; the encoding's first run.
        checkpoint: the trained weights; None where training came to none: then costs alone.
    """
    cfg = apply(study.base(), run.entry)
    makers: dict[str, Callable[[], Any]] = {
        'costs': lambda: costs(study.base(), run.entry, study.sizes)}
    if checkpoint is not None:
        makers.update(pictures=lambda: draw_predictions(cfg, checkpoint, study.pictures,
                                                        study.folder, run.entry.slug),
                      figures=lambda: _figures(study, run, cfg, checkpoint),
                      diagnosis=lambda: diagnose_config(cfg, checkpoint))
    for name in missing(study, run):
        if name not in makers:
            continue
        try:
            content, note = makers[name](), ''
        except Exception as error:
            traceback.print_exc()
            content, note = None, f'no {name}: {in_a_line(error)}'
        write_json(run.folder / f'{name}.json',
                   {'for': wanted(study)[name], 'content': content, 'note': note})


def costs(base: Config, entry: Entry, factors: tuple[float, ...]) -> list[dict[str, Any]]:
    """Parameters, multiply-accumulates and activations of the model at every size.

    Args:
        base: the study's config.
        entry: the encoding.
        factors: of the trained size.
    """
    cfg, found = apply(base, entry), []
    for factor in factors:
        size, told = input_size(cfg, factor), dict.fromkeys(('parameters', 'macs', 'activations'))
        if size is not None:
            whole = count(cfg, size).parts[0]
            told = {key: getattr(whole, key) for key in told}
        found.append({'factor': factor, 'hw': size, **told})
    return found


def input_size(cfg: Config, factor: float) -> tuple[int, int] | None:
    """(H, W) of what the model gets at a factor, filled up as its preprocessor does: of the first
    test image, where images are taken as they are; None where there is none."""
    scaled = resized(cfg, factor)
    size = tested_size(scaled) or first_size(scaled)
    if size is None:
        return None
    step = own_preprocessor(cfg).get('pad_size_divisor') or 1
    return -(-size[0] // step) * step, -(-size[1] // step) * step


def first_size(cfg: Config) -> tuple[int, int] | None:
    """(H, W) of the first test image as the model gets it; None where there is none."""
    dataset = test_set(cfg)
    return tuple(dataset[0]['inputs'].shape[-2:]) if len(dataset) else None


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


def _figures(study: Study, run: Run, cfg: Config, checkpoint: str) -> Any:
    from mmposenc.lab.figures import encoding_figures
    folder = study.folder / 'figures' / run.entry.slug
    folder.mkdir(parents=True, exist_ok=True)
    photo = folder / 'photo.png'
    write_picture(photo, original(test_set(cfg), 0)[0])
    made = encoding_figures.figures_of(cfg, checkpoint, folder, str(photo))
    return [{**each, 'file': str((folder / Path(each['file']).name).relative_to(study.folder))}
            for each in made]
