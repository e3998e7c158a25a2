"""Measures what each model of a study costs: parameters, multiply-accumulates, time and memory."""
from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import torch
from mmengine.config import Config

from mmposenc.config_types import ImageSize
from mmposenc.engine.config import images, models
from mmposenc.engine.config.checked_classes import build_data_set
from mmposenc.engine.config.image_sizes import Size
from mmposenc.engine.config.parsed import ParsedConfig
from mmposenc.engine.variants.applying import with_entry
from mmposenc.engine.variants.encodings import Entry
from mmposenc.engine.variants.sizes import config_at_size, size_at, size_word
from mmposenc.lab.inspect.counts import count_for_one_image
from mmposenc.terminal.messages import counted, in_a_line

from ..study.records import COSTS, Record, read_json_if_any, write_json
from ..study.study import Study, planning_lock

#: The number of timed passes; one that is not timed comes before them.
_PASSES = 5


def measure_missing_costs(study: Study, *, timed: bool) -> None:
    """Count, and time if asked for, every model at every size of which it is not known yet, one
    after the other in this process."""
    # If two commands reach this point, only one of them measures.
    with planning_lock(study.folder):
        known: dict[str, list[Record]] = read_json_if_any(study.costs_file, COSTS) or {}
        missing = [(entry, at) for entry in study.entries for at in study.sizes
                   if not any(row['factor'] == at and ('seconds' in row or not timed)
                              for row in known.get(entry.name, ()))]
        if missing and timed:
            number = len({entry.name for entry, _ in missing})
            print(f'measuring the speed of {counted(number, "model")}: please run nothing else',
                  flush=True)
        sizes = {at: input_size(study.base, at) for at in {each[1] for each in missing}}
        for entry, at in missing:
            rows = [row for row in known.get(entry.name, ()) if row['factor'] != at]
            row = measure_costs(study.base, entry, at, sizes[at], timed=timed)
            known[entry.name] = [*rows, row]
            write_json(study.costs_file, known)


def measure_costs(base: ParsedConfig, entry: Entry, at: ImageSize, size: Size | None, *,
                  timed: bool) -> Record:
    """What a model costs at a size; None where it is not known.

    Returns:
        parameters, macs, and if it is timed seconds for one image and peak_bytes of an accelerator.
    """
    row: Record = {'factor': at, 'hw': size, 'parameters': None, 'macs': None}
    if timed:
        row.update(seconds=None, peak_bytes=None)
    try:
        if size is not None:
            cfg = with_entry(base, entry)
            counts = count_for_one_image(cfg, size)
            row.update(parameters=counts.parameters, macs=counts.macs)
            if timed:
                row.update(time_passes(cfg, size, models.device_of(None)))
    except Exception as error:
        print(f'{entry.name} at {size_word(at, "x")} is not '
              f'{"timed" if row["macs"] else "counted"}: {in_a_line(error)}', file=sys.stderr)
    return row


def time_passes(cfg: Config, hw_shape: Size, device: torch.device) -> Record:
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
    image = images.noise_image(ParsedConfig(cfg), hw_shape).to(device)
    backend: Any = None if device.type == 'cpu' else getattr(torch, device.type)
    seconds = []
    if backend is not None:
        backend.reset_peak_memory_stats(device)
    with torch.no_grad():
        for _ in range(1 + _PASSES):
            start = time.perf_counter()
            images.run_network(cfg.default_scope, model, image)
            if backend is not None:
                backend.synchronize(device)
            seconds.append(time.perf_counter() - start)
    peak = None if backend is None else int(backend.max_memory_allocated(device))
    return dict(seconds=statistics.median(seconds[1:]), peak_bytes=peak)


def input_size(base: ParsedConfig, at: ImageSize) -> Size | None:
    """The size (H, W) of the model's input at a size of the test, padded as its preprocessor does.
    It is that of the first test image if images keep their own sizes; None if there is none."""
    size = size_at(base, at) or first_test_image_size(base, at)
    if size is None:
        return None
    sized = images.preprocessor_config(ParsedConfig(config_at_size(base.cfg, at)))
    step = sized.get('pad_size_divisor') or 1
    return -(-size[0] // step) * step, -(-size[1] // step) * step


def first_test_image_size(base: ParsedConfig, at: ImageSize = 1.0) -> Size | None:
    """The size (H, W) of the first test image as the model gets it; None if there is none."""
    dataset = build_data_set(config_at_size(base.cfg, at), 'test')
    return tuple(dataset[0]['inputs'].shape[-2:]) if len(dataset) else None
