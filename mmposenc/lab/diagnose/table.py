"""Runs all measures of a model."""
from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from .attention import measure_attention, measure_similarity
from .changes import measure_padding, measure_shifts, measure_sizes
from .features import Examined, Run
from .measure import Measure
from .probe import measure_probe


def diagnose(model: nn.Module, images: Mapping[str, Tensor], run: Run | None = None, *,
             seed: int = 0) -> list[Measure]:
    """Measure how a model depends on position, without training it.

    Args:
        model: a backbone or a detector, trained or not; other modules that contain a backbone of
            this project need ``run``.
        images: preprocessed images (B, C, H, W) by name, for the legends; more images named 'noise'
            are drawn if many are needed. Sides must be multiples of the stride of the last map.
            Values and maps are of the last entry.
        run: runs the model on images (B, C, H, W) with their sizes (height, width) in pixels; by
            default ``model(images)``, with the sizes stored for ``mask_padding``.
        seed: seed of random crops.

    Returns:
        The measures in a fixed order; a measure that does not apply has no numbers and says why.

    Raises:
        ValueError: there are no images, a side is not a multiple, or the model has nothing to
            measure.
    """
    examined = Examined(model, run)
    _check(examined, images)
    first = list(images.values())[-1][:1]
    return [*measure_shifts(examined, images), *measure_probe(examined, images, seed),
            *measure_attention(examined, images), *measure_sizes(examined, images),
            *measure_padding(examined, images), *measure_similarity(examined, first)]


def _check(examined: Examined, images: Mapping[str, Tensor]) -> None:
    if not images:
        raise ValueError('images={} must hold at least one batch (B, C, H, W)')
    for kind, batch in images.items():
        if batch.dim() != 4 or not len(batch):
            raise ValueError(f'images[{kind!r}] has shape {tuple(batch.shape)}; it must be '
                             f'(B, C, H, W) with at least one image')
        cell = examined.maps(batch[:1])[-1].stride
        if any(side % cell for side in batch.shape[-2:]):
            raise ValueError(f'images[{kind!r}] are {batch.shape[-2]} x {batch.shape[-1]} pixels; '
                             f'they must be multiples of {cell}, the stride of the last map')
