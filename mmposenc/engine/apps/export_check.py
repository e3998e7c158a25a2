"""Checks that an exported file computes what its model computes."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from mmengine.config import Config
from torch import Tensor

from ..config.nodes import build_data_set
from .raw_outputs import Detections, RawOutputs

Run = Callable[..., Sequence[Tensor]]
#: What a file says about itself, as JSON.
Notes = dict[str, Any]
#: The largest number of pictures that are read.
_PICTURES = 5
#: How many boxes noise should give, and in how many steps at most it is changed.
_BOXES, _STEPS = 5, 12


class Check(NamedTuple):
    """What was compared, and how well it agreed.

    Attributes:
        difference: the largest from the model itself, in shares of an output's size.
        sizes: (images, height, width) of the batches.
        boxes: how many the model found in them; None where the file gives other outputs.
    """

    difference: float
    sizes: list[tuple[int, ...]]
    boxes: int | None


def pictures_of_test_data(raw: RawOutputs, cfg: Config, notes: Notes) -> list[Tensor]:
    """The first pictures of the config's test data as the file takes them, (1, C, H, W) each; an
    empty list if the files are not there."""
    described = (cfg.get('test_dataloader') or {}).get('dataset')
    if not described:
        return []
    try:
        dataset = build_data_set(described)
        pictures = [dataset[i]['inputs'][None].float() for i in range(min(_PICTURES, len(dataset)))]
    except FileNotFoundError:
        return []
    pictures = [each.flip(1) if notes['channels'] == 'RGB' else each for each in pictures]
    if raw.normalises or not notes['mean']:
        return pictures
    mean, std = (torch.tensor(notes[name]).view(-1, 1, 1) for name in ('mean', 'std'))
    return [(each - mean) / std for each in pictures]


@torch.no_grad()
def compare_with_model(raw: RawOutputs, run: Run, example: Tensor, notes: Notes,
                       pictures: Sequence[Tensor], tolerance: float) -> Check:
    """Compare a file with its model, in noise of several sizes. A file that gives boxes is compared
    in pictures, where there are any; if the model finds no box in all of these, also in noise that
    is changed until it does.

    Args:
        raw: the model.
        run: the file.
        example: the batch (B, C, H, W) that it was made with; other sizes are derived from it.
        notes: what the file says about itself.
        pictures: :func:`pictures_of_test_data`, for a file that gives boxes.
        tolerance: the largest difference, in shares of an output's size.

    Raises:
        RuntimeError: the file gives other numbers, or no boxes where the model finds some.
    """
    sizes = _sizes_to_compare((example.shape[2], example.shape[3]), notes)
    shapes = [(images, example.shape[1], *each) for each in sizes for images in (1, 3)]
    if not isinstance(raw, Detections):
        return _compare_batches(raw, run, (_noise_image(raw, shape) for shape in shapes), tolerance)
    shapes = shapes[::2]
    pictures = pictures or [_noise_image(raw, each) for each in shapes]
    first = _compare_batches(raw, run, (
        F.interpolate(pictures[number % len(pictures)], each, mode='bilinear')
        for number, each in enumerate(sizes)), tolerance)
    if first.boxes:
        return first
    more = _compare_batches(raw, run, (_changed_until_boxes(raw, _noise_image(raw, each)) for each
                                       in shapes[:2]),
                            tolerance)
    return Check(max(first.difference, more.difference), first.sizes + more.sizes, more.boxes)


def _compare_batches(raw: RawOutputs, run: Run, batches: Iterable[Tensor],
                     tolerance: float) -> Check:
    worst, boxes = 0.0, 0
    sizes: list[tuple[int, ...]] = []
    for batch in batches:
        images, _, height, width = batch.shape
        where = f'{images} images of {height}x{width}'
        ours, others = raw(batch), run(batch)
        if isinstance(raw, Detections):
            boxes += len(ours[0])
            if bool(len(ours[0])) != bool(len(others[0])):
                raise RuntimeError(f'{where}: the model finds {len(ours[0])} boxes, and the file '
                                   f'{len(others[0])}; the file is not kept. Export without '
                                   f'--decode, and decode the maps of the file by yourself')
        for name, difference in raw.named_differences(batch, ours, others):
            if not difference <= tolerance:
                raise RuntimeError(f'{where}: {name} is {difference:.2g} of its size away from '
                                   f'what the model gives, more than tolerance={tolerance:g}; the '
                                   f'file is not kept')
            worst = max(worst, difference)
        sizes.append((images, height, width))
    return Check(worst, sizes, boxes if isinstance(raw, Detections) else None)


def _sizes_to_compare(size: tuple[int, int], notes: Notes) -> list[tuple[int, ...]]:
    """The sizes at which the file is compared: that of the example and others, odd and landscape
    ones too, as far as the graph holds for them."""
    height, width = size
    wanted = [size, (width + 1, height - 29), (height - 32, height - 32),
              (height // 2 + 3, width + 45), (height + 64, width // 2)]
    limits = notes['height'], notes['width']
    return list(dict.fromkeys(tuple(map(_clamped_side, each, limits)) for each in wanted))


def _clamped_side(side: int, limits: list[int | None]) -> int:
    least, most = limits
    return max(side, least or 1) if most is None else min(max(side, least or 1), most)


def _noise_image(raw: RawOutputs, shape: tuple[int, ...]) -> Tensor:
    batch = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    return (batch.abs() * 255 / 4).clamp(max=255) if raw.normalises else batch


def _changed_until_boxes(raw: Detections, batch: Tensor) -> Tensor:
    """A picture (1, C, H, W), changed step by step until the model finds boxes in it, if it does.
    """
    step = 16.0 if raw.normalises else 0.25
    for _ in range(_STEPS):
        if len(raw(batch)[0]) >= _BOXES:
            break
        with torch.enable_grad():
            pixels = batch.detach().requires_grad_()
            up, = torch.autograd.grad(raw.sum_of_top_logits(pixels), pixels)
        batch = batch + step * up.sign()
        batch = batch.clamp(0, 255) if raw.normalises else batch
    return batch
