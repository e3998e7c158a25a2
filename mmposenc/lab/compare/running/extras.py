"""Makes what is made once for each encoding, with its first trained model: costs, pictures and
figures.

None of it may end a study: what can't be made leaves a note for the report. Pictures are what the
model predicts for some test images, next to the ground truth.
"""
from __future__ import annotations

import statistics
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cv2
import mmcv
import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.registry import init_default_scope

from mmposenc.engine.apps.class_names import class_colours, class_names
from mmposenc.engine.apps.pictures import draw_sample, rgb_bytes_of_loaded, visualizer_of
from mmposenc.engine.apps.result import Result
from mmposenc.engine.config import models
from mmposenc.engine.config.nodes import Size, build_data_set
from mmposenc.engine.config.testing import scope_of
from mmposenc.engine.variants.applying import with_entry
from mmposenc.engine.variants.encodings import Entry
from mmposenc.engine.variants.parsed import ParsedConfig
from mmposenc.engine.variants.sizes import config_at_size, size_at
from mmposenc.lab.inspect.counts import count_for_one_image
from mmposenc.terminal.messages import in_a_line

from ..study.files import Record, read_json, write_json
from ..study.study import Run, Study, planning_lock

#: By library, how many times as many pictures are predicted as are shown, so that the page can show
#: those on which encodings disagree. Small pictures cost little.
_LOOKED_AT = {'mmpretrain': 6}
#: The number of timed passes; one that is not timed comes before them.
_PASSES = 5
#: The score above which boxes are drawn, and the longest side of a picture in pixels.
_SCORE, _LONGEST = 0.3, 640


def wanted_extras(study: Study) -> Record:
    """The extras that a study wants, with what each of them depends on."""
    depends_on = {'costs': list(study.sizes), 'pictures': study.pictures,
                  'figures': 'figures' in study.extras}
    return {name: depends for name, depends in depends_on.items() if depends}


def missing_extras(study: Study, run: Run) -> list[str]:
    """The extras of an encoding that are wanted, and are not there or could not be made so far."""
    held = {name: read_json(run.folder / f'{name}.json') or {} for name in wanted_extras(study)}
    return [name for name, depends in wanted_extras(study).items()
            if held[name].get('for') != depends or held[name].get('note')]


def make_missing_extras(study: Study, run: Run, checkpoint: str | None) -> None:
    """Make the extras that an encoding lacks, each in a file of the run's folder.

    Args:
        study, run: which; the encoding's first run.
        checkpoint: the trained weights; None where training left none: then only costs.
    """
    cfg = with_entry(study.base, run.entry)
    makers: dict[str, Callable[[], object]] = {
        'costs': lambda: count_costs(cfg, input_sizes(study))}
    if checkpoint is not None:
        makers.update(pictures=lambda: draw_predictions(cfg, checkpoint, study.pictures,
                                                        study.folder, run.entry.slug),
                      figures=lambda: _draw_figures(study, run, cfg, checkpoint))
    for name in missing_extras(study, run):
        if name not in makers:
            continue
        try:
            content, note = makers[name](), ''
        except Exception as error:
            traceback.print_exc()
            content, note = None, f'no {name}: {in_a_line(error)}'
        write_json(run.folder / f'{name}.json',
                   {'for': wanted_extras(study)[name], 'content': content, 'note': note})


def count_costs(cfg: Config, sizes: Mapping[float, Size | None]) -> list[Record]:
    """The parameters and multiply-accumulates of the model at every size.

    Args:
        cfg: the study's config with an encoding.
        sizes: of :func:`input_sizes`.
    """
    rows = []
    for factor, size in sizes.items():
        counts = None if size is None else count_for_one_image(cfg, size, without=False)
        rows.append({'factor': factor, 'hw': size,
                     'parameters': None if counts is None else counts.parameters,
                     'macs': None if counts is None else counts.macs})
    return rows


def input_sizes(study: Study) -> dict[float, Size | None]:
    """The :func:`input_size` at each factor of a study, the same for all its encodings."""
    return {factor: input_size(study.base, factor) for factor in study.sizes}


def input_size(base: ParsedConfig, factor: float) -> Size | None:
    """The size (H, W) of the model's input at a factor, padded as its preprocessor does. It is that
    of the first test image if images keep their own sizes; None if there is none."""
    size = size_at(base, factor) or first_test_image_size(base, factor)
    if size is None:
        return None
    step = base.preprocessor.get('pad_size_divisor') or 1
    return -(-size[0] // step) * step, -(-size[1] // step) * step


def first_test_image_size(base: ParsedConfig, factor: float = 1.0) -> Size | None:
    """The size (H, W) of the first test image as the model gets it; None if there is none."""
    dataset = test_set(base.scope, config_at_size(base.cfg, factor))
    return tuple(dataset[0]['inputs'].shape[-2:]) if len(dataset) else None


def time_all_if_missing(study: Study) -> None:
    """Time every encoding at every size, one after the other in this process, if the study wants
    times and one is missing."""
    if 'time' not in study.extras:
        return
    firsts = [run for run in study.runs() if run.first]
    # If two commands reach this point, only one of them times the models.
    with planning_lock(study.folder):
        if all({*study.sizes} <= {each['factor'] for each in read_json(run.folder / 'times.json')
                                  or ()} for run in firsts):
            return
        print(f'timing {len(firsts)} models one after the other; other programs would slow them '
              'down', flush=True)
        for run in firsts:
            write_json(run.folder / 'times.json', measure_times(study, run.entry))


def measure_times(study: Study, entry: Entry) -> list[Record]:
    """The seconds for one image at every size, and the peak memory of the accelerator."""
    cfg, timed = with_entry(study.base, entry), []
    for factor in study.sizes:
        row: dict[str, object] = {'factor': factor}
        try:
            size = input_size(study.base, factor)
            if size is not None:
                row.update(measure_time(cfg, size, models.device_of(None)))
        except Exception as error:
            print(f'{entry.name} at {factor:g}x is not timed: {in_a_line(error)}', file=sys.stderr)
        timed.append(row)
    return timed


def measure_time(cfg: Config, hw_shape: tuple[int, int], device: torch.device) -> Record:
    """Time passes of one random image, with random weights and without post-processing.

    Args:
        cfg: a config of mmdet, mmseg or mmpretrain.
        hw_shape: (H, W) of the input in pixels.
        device: where it runs.

    Returns:
        ``seconds``: the median of some passes; ``peak_bytes``: of an accelerator's memory, on a
        CPU None.
    """
    model = models.build_bare(cfg).to(device)
    image = models.noise_images(cfg, hw_shape).to(device)
    backend: Any = None if device.type == 'cpu' else getattr(torch, device.type)
    seconds = []
    if backend is not None:
        backend.reset_peak_memory_stats(device)
    with torch.no_grad():
        for _ in range(1 + _PASSES):
            start = time.perf_counter()
            models.run_network(scope_of(cfg), model, image)
            if backend is not None:
                backend.synchronize(device)
            seconds.append(time.perf_counter() - start)
    peak = None if backend is None else int(backend.max_memory_allocated(device))
    return dict(seconds=statistics.median(seconds[1:]), peak_bytes=peak)


def _draw_figures(study: Study, run: Run, cfg: Config, checkpoint: str) -> list[Record]:
    """Draw the encodings of a trained model, on the first test image."""
    from mmposenc.lab.inspect.figures import all_pictures
    from mmposenc.lab.inspect.report import inspected_model_and_inputs
    folder = study.folder / 'figures' / run.entry.slug
    folder.mkdir(parents=True, exist_ok=True)
    subject, inputs = inspected_model_and_inputs(cfg, checkpoint, count=1)
    drawn = []
    for each in all_pictures(subject, inputs.images, inputs.photo, (0.5, 0.5)):
        path = folder / f'{each.name}.png'
        each.draw().savefig(path, dpi=110)
        drawn.append(dict(title=each.title, file=str(path.relative_to(study.folder)),
                          text=each.sentence))
    return drawn


def draw_predictions(cfg: Config, checkpoint: str, number: int, folder: Path, name: str
                     ) -> list[Record]:
    """Draws the predictions of a model for test images, spread evenly over the test set.

    Args:
        cfg: whose test set and model.
        checkpoint: the weights.
        number: of images that are shown; more of them are drawn, see :data:`_LOOKED_AT`.
        folder: of the study; pictures go to ``pictures/`` in it.
        name: of the encoding, as a part of file names.

    Returns:
        For each image its id and title, and file (from ``folder``) and text of the truth
        and of what was predicted.
    """
    scope, device = scope_of(cfg), models.device_of(None)
    dataset = test_set(scope, cfg)
    model: Any = models.build_model(cfg)
    names = class_names(cfg, models.load_all_weights(model, checkpoint))
    model.to(device).eval()
    visualizer = visualizer_of(scope, {'classes': names, 'palette': class_colours(cfg, names)})
    total, pictures = min(number * _LOOKED_AT.get(scope, 2), len(dataset)), []
    for index in (i * len(dataset) // total for i in range(total)):
        with torch.no_grad():
            sample = model.test_step(pseudo_collate([dataset[index]]))[0].cpu()
        pixels, source = original_pixels_and_file(dataset, index)
        key = f'image{index}'
        picture: dict[str, object] = {'id': key, 'title': source or f'test image {index}'}
        result = Result(source, pixels, sample, scope, _SCORE, visualizer)
        texts = {'truth': truth_text(scope, sample, names), 'predicted': predicted_text(result)}
        for what, suffix in (('truth', 'truth'), ('predicted', name)):
            path = folder / 'pictures' / f'{key}_{suffix}.jpg'
            # A class is shown as text below the picture, because on a small picture it would cover
            # the content.
            drawn = pixels
            if scope != 'mmpretrain':
                draw_sample(scope, visualizer, pixels, sample, truth=what == 'truth',
                            predicted=what == 'predicted', score_thr=_SCORE)
                drawn = visualizer.get_image()
            mmcv.imwrite(_shrunk_picture(drawn)[..., ::-1], str(path))
            picture[what] = {'file': str(path.relative_to(folder)), 'text': texts[what]}
        pictures.append(picture)
    return pictures


def test_set(scope: str, cfg: Config) -> Any:
    """The data set of a config's test."""
    init_default_scope(scope)
    return build_data_set(cfg.test_dataloader.dataset)


def original_pixels_and_file(dataset: Any, index: int) -> tuple[np.ndarray, str]:
    """The pixels (H, W, 3) in RGB of an image before the pipeline of its data set changes it, and
    its file.

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
    return rgb_bytes_of_loaded(np.asarray(info['img'])), Path(info.get('img_path') or '').name


def predicted_text(result: Result) -> str:
    """Describe in words what was predicted."""
    if result.boxes is not None:
        return _counted_objects_text(result.names)
    if result.masks is not None:
        return _area_shares_text(dict(zip(result.names, result.scores.tolist(), strict=True)))
    return f'{result.names[0]} ({result.scores[0]:.0%})'


def truth_text(scope: str, sample: Any, names: list[str]) -> str:
    """Describe in words what is in the picture; '' if the test set does not say it."""
    if scope == 'mmpretrain':
        return ', '.join(names[int(label)] for label in sample.get('gt_label', []))
    if scope == 'mmseg':
        if 'gt_sem_seg' not in sample:
            return ''
        labels, counts = np.unique(sample.gt_sem_seg.data.numpy(), return_counts=True)
        return _area_shares_text({names[label]: count / counts.sum() for label, count in
                                  sorted(zip(labels, counts, strict=True),
                                         key=lambda pair: -pair[1])
                                  if label < len(names)})
    if 'gt_instances' not in sample:
        return ''
    return _counted_objects_text([names[int(label)] for label in sample.gt_instances.labels])


def _counted_objects_text(names: list[str]) -> str:
    counts = sorted(Counter(names).items())
    return ', '.join(f'{count} {name}' for name, count in counts) or 'no objects'


def _area_shares_text(shares: dict[str, float]) -> str:
    return ', '.join(f'{name} {share:.0%}' for name, share in list(shares.items())[:5])


def _shrunk_picture(pixels: np.ndarray) -> np.ndarray:
    scale = _LONGEST / max(pixels.shape[:2])
    if scale >= 1:
        return pixels
    size = tuple(max(1, round(side * scale)) for side in pixels.shape[1::-1])
    return cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
