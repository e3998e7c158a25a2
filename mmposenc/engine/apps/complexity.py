"""Parameters, multiply-accumulates, activations and time of the model of a config, by size."""
from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from mmengine.config import Config
from torch import nn

from mmposenc.backbones.operators import OperatorCounter
from mmposenc.command_line import describe
from mmposenc.functional.image_sizes import set_img_shapes

from ..config.models import build_bare, noise, pass_once
from ..config.testing import scope_of

#: Timed passes, after one that is not timed.
PASSES = 5


class Part(NamedTuple):
    """What one module of a model takes for one image; '' is all of it."""

    name: str
    parameters: int
    macs: int
    activations: int


class Complexity(NamedTuple):
    """What a model takes for one image of one size.

    Attributes:
        hw_shape: (H, W) of the model's input in pixels.
        parts: the whole, then its modules as they are registered.
        by_convention, uncounted: operators that were not counted, and how often they ran: those
            for which the papers' tables count nothing either, and all others.
        counted_on: 'meta', where nothing is computed, or 'cpu'.
        note: why not on 'meta'.
    """

    hw_shape: tuple[int, int]
    parts: list[Part]
    by_convention: dict[str, int]
    uncounted: dict[str, int]
    counted_on: str
    note: str = ''


class Timing(NamedTuple):
    """Seconds of a pass: the median of some, and the peak of an accelerator's memory."""

    seconds: float
    passes: int
    device: str
    threads: int
    peak_bytes: int | None


def count(cfg: Config, hw_shape: tuple[int, int]) -> Complexity:
    """Counts what the model of a config takes for one image, its heads included.

    Attention and encodings are counted by their definition, over all pairs. Post-processing, such
    as the suppression of boxes, is no part of it. Models whose pass looks at its numbers (proposals
    of a region proposal network) can't run on the meta device; they run on the CPU with random
    weights, and their second stages are counted for the proposals that these give.

    Args:
        cfg: a config of mmdet, mmseg or mmpretrain, of this project's models or others.
        hw_shape: (H, W) of the input, after the preprocessor's padding.

    Raises:
        ValueError: a size below 1.
    """
    _check_size(hw_shape)
    scope, image = scope_of(cfg), noise(cfg, hw_shape)
    on_meta = image.to('meta')
    try:
        model = build_bare(cfg, 'meta')
        return _summed(model, hw_shape, [_run(model, lambda: pass_once(scope, model, on_meta))])
    except Exception as error:  # whatever a model does that needs numbers
        note = describe(error).splitlines()[0]
    whole = build_bare(cfg, 'cpu')
    for name, module in whole.named_modules():
        if getattr(module, 'form', None) == 'auto' and not _in_backbone(name):
            setattr(module, 'form', 'definition')  # noqa: B010  (no declared attribute of a Module)
    counts = [_run(whole, lambda: pass_once(scope, whole, image))]
    try:  # its definition may not fit into the memory, so only the backbone is counted on meta
        part: Any = build_bare(cfg, 'meta')
        own = _run(part, lambda: part.backbone(set_img_shapes(on_meta, [hw_shape])))
    except Exception:  # a backbone that needs numbers too, such as one upstream: none to define
        return _summed(whole, hw_shape, counts, note)
    for counter in vars(counts[0]).values():
        if isinstance(counter, Counter):
            for key in [key for key in counter
                        if _in_backbone(key if isinstance(key, str) else key[0])]:
                del counter[key]
    return _summed(whole, hw_shape, [*counts, own], note)


def _in_backbone(name: str) -> bool:
    return name.split('.')[0] == 'backbone'


def _run(model: nn.Module, run: Callable[[], object]) -> OperatorCounter:
    with OperatorCounter(model) as counter, torch.no_grad():
        run()
    return counter


def _summed(model: nn.Module, hw_shape: tuple[int, int], counters: list[OperatorCounter],
            note: str = '') -> Complexity:
    def total(kind: str) -> Counter[Any]:
        return sum((getattr(counter, kind) for counter in counters), Counter())

    def by_operator(kind: str) -> dict[str, int]:
        found: Counter[str] = Counter()
        for (_, name), number in total(kind).items():
            found[name] += number
        return dict(found)
    return Complexity(hw_shape, list(_parts(model, total('macs'), total('activations'))),
                      by_operator('by_convention'), by_operator('uncounted'),
                      'cpu' if note else 'meta', note)


def measure_time(cfg: Config, hw_shape: tuple[int, int], device: torch.device, *,
                 passes: int = PASSES) -> Timing:
    """Times passes of one random image, with random weights, without post-processing.

    Args:
        cfg, hw_shape: as :func:`count` takes them.
        device: where it runs.
        passes: how many are timed, after one that is not.
    """
    _check_size(hw_shape)
    model = build_bare(cfg, 'cpu').to(device)
    image = noise(cfg, hw_shape).to(device)
    on_cpu, taken = device.type == 'cpu', []
    backend: Any = None if on_cpu else getattr(torch, device.type)
    if backend is not None:
        backend.reset_peak_memory_stats(device)
    with torch.no_grad():
        for _ in range(1 + passes):
            start = time.perf_counter()
            pass_once(scope_of(cfg), model, image)
            if backend is not None:
                backend.synchronize(device)
            taken.append(time.perf_counter() - start)
    return Timing(statistics.median(taken[1:]), passes, str(device), torch.get_num_threads(),
                  None if backend is None else int(backend.max_memory_allocated(device)))


def _check_size(hw_shape: tuple[int, int]) -> None:
    if min(hw_shape) < 1:
        raise ValueError(f'size={hw_shape} must be at least (1, 1)')


def _parts(model: nn.Module, macs: Counter[str], activations: Counter[str]) -> Iterator[Part]:
    macs, activations = _with_parents(macs), _with_parents(activations)
    for name, module in model.named_modules():
        parameters = sum(each.numel() for each in module.parameters())
        if not name or parameters or macs[name] or activations[name]:
            yield Part(name, parameters, macs[name], activations[name])


def _with_parents(counts: Counter[str]) -> Counter[str]:
    """A head that is called by its method, past its hooks, still has what its layers took."""
    total: Counter[str] = Counter()
    for name, number in counts.items():
        words = name.split('.') if name else []
        for depth in range(len(words) + 1):
            total['.'.join(words[:depth])] += number
    return total
