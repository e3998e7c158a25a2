"""Checks that an exported file computes what its model computes."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from mmengine.config import Config
from torch import Tensor

from ..config.checked_classes import build_data_set
from .raw_outputs import Detections, RawOutputs

Run = Callable[..., Sequence[Tensor]]
#: What a file says about itself, as JSON.
Notes = dict[str, Any]
#: The largest number of pictures that are read.
_PICTURES = 5


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


def pictures_of_test_data(cfg: Config, notes: Notes) -> list[Tensor]:
    """The first pictures of the config's test data as the file takes them, (1, C, H, W) each; an
    empty list if the files are not there."""
    if not cfg.get('test_dataloader'):
        return []
    try:
        dataset = build_data_set(cfg, 'test')
        pictures = [dataset[i]['inputs'][None].float() for i in range(min(_PICTURES, len(dataset)))]
    except FileNotFoundError:
        return []
    return [each.flip(1) if notes['channels'] == 'RGB' else each for each in pictures]


@torch.no_grad()
def compare_with_model(raw: RawOutputs, run: Run, example: Tensor, notes: Notes,
                       pictures: Sequence[Tensor], tolerance: float) -> Check:
    """Compare a file with its model at several sizes.

    Args:
        raw: the model.
        run: the file.
        example: the batch (B, C, H, W) that it was made with; other sizes are derived from it.
        notes: what the file says about itself.
        pictures: that are resized and compared, such as :func:`pictures_of_test_data`, in which a
            detector finds boxes; without any, noise is.
        tolerance: the largest difference, in shares of an output's size.

    Raises:
        RuntimeError: the file gives other numbers, or no boxes where the model finds some.
    """
    decodes = isinstance(raw, Detections)
    worst, boxes = 0.0, 0
    sizes: list[tuple[int, ...]] = []
    for batch in _batches_of_many_sizes(example, notes, pictures, (1,) if decodes else (1, 3)):
        images, _, height, width = batch.shape
        where = f'{images} images of {height}x{width}'
        ours, others = raw(batch), run(batch)
        if decodes:
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
    return Check(worst, sizes, boxes if decodes else None)


def _batches_of_many_sizes(example: Tensor, notes: Notes, pictures: Sequence[Tensor],
                           counts: Sequence[int]) -> Iterator[Tensor]:
    """Batches of the example's size and of others, odd and landscape ones too, as far as the graph
    holds for them."""
    channels, height, width = example.shape[1:]
    wanted = [(height, width), (width + 1, height - 29), (height - 32, height - 32),
              (height // 2 + 3, width + 45), (height + 64, width // 2)]
    limits = notes['height'], notes['width']
    sizes = [size for size in wanted
             if all((least or 1) <= side <= (most or side)
                    for side, (least, most) in zip(size, limits, strict=True))]
    for number, size in enumerate(sizes):
        for count in counts:
            if pictures:
                yield F.interpolate(pictures[number % len(pictures)], size, mode='bilinear')
            else:
                generator = torch.Generator().manual_seed(0)
                yield torch.rand(count, channels, *size, generator=generator) * 255
