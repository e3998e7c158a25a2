"""How much an image's output changes when its batch is padded."""
from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from .features import Examined
from .measure import Measure, Series, line
from .shifts import relative_error

PADDING = Measure(
    'padding_error', 'Change of the output in a padded batch',
    'e(n) = ||f(x padded) - f(x)|| / ||f(x)|| over the cells of x and all channels, all images '
    'together; f is the last map. x is padded with zeros by n pixels to the right and below, in a '
    'batch with a picture that fills it. 0 with mask_padding that is told the sizes.',
    'share of ||f(x)||', 'padding, pixels', 'relative error')


def measure_padding(examined: Examined, images: Mapping[str, Tensor]) -> list[Measure]:
    """:data:`PADDING`, with ``mask_padding`` as the model has it.

    Args:
        examined: the model.
        images: (B, C, H, W) by what they are.
    """
    series: list[Series] = []
    value, refused = None, ''
    for kind, batch in images.items():
        alone = examined.maps(batch)[-1]
        cells = max(alone.values.shape[-2:])
        steps = sorted({max(1, cells // part) for part in (cells, 4, 2, 1)})
        errors: list[float | None] = []
        for step in steps:
            try:
                errors.append(padded_error(examined, batch, alone.values, step * alone.stride))
            except ValueError as error:  # encodings may have a largest grid
                errors.append(None)
                refused = f' At {step * alone.stride} pixels the model says: {error}'
        series.append(line(kind, [0, *(step * alone.stride for step in steps)], [0.0, *errors]))
        value = errors[-1]
    masks = {str(module.mask_padding) for module in examined.model.modules()
             if hasattr(module, 'mask_padding')}
    setting = f'mask_padding={" and ".join(sorted(masks))}' if masks else 'no mask_padding'
    text = f'The model has {setting}. The value is that of the largest padding, of {kind}.{refused}'
    return [PADDING.of(text, value, series)]


def padded_error(examined: Examined, images: Tensor, alone: Tensor, padding: int) -> float:
    """The relative error of the last map on each image's own cells.

    Args:
        examined: the model.
        images: (B, C, H, W), all to be padded.
        alone: (B, C', h, w), their last map without padding.
        padding: pixels to the right and below.
    """
    height, width = images.shape[-2:]
    full = (height + padding, width + padding)
    other = F.interpolate(images[:1], full, mode='bilinear', align_corners=False)
    batch = torch.cat((F.pad(images, (0, padding, 0, padding)), other))
    found = examined.maps(batch, [(height, width)] * len(images) + [full])[-1].values
    rows, cols = alone.shape[-2:]
    return relative_error(found[:len(images), :, :rows, :cols], alone)
