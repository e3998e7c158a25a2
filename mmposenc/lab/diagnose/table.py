"""All measures of a model."""
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
    """Measures what a model knows of places, without training it.

    Args:
        model: a backbone or a detector, trained or not; other modules that hold a backbone of this
            project need ``run``.
        images: what it looks at, (B, C, H, W) as it takes them, by names for the legends: 'noise'
            is drawn anew where many images are needed. Sides are multiples of the cells of the last
            map. Values and maps are of the last entry.
        run: one pass over images (B, C, H, W), of which each fills (height, width) pixels; by
            default ``model(images)``, with the sizes noted for ``mask_padding``.
        seed: of random crops.

    Returns:
        The measures in a fixed order; those that do not apply have no numbers and say why.

    Raises:
        ValueError: no images, sides that are no multiple, or a model with nothing to look at.
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
            raise ValueError(f'images[{kind!r}] has shape {tuple(batch.shape)}; (B, C, H, W) with '
                             f'at least one image is required')
        cell = examined.maps(batch[:1])[-1].stride
        if any(side % cell for side in batch.shape[-2:]):
            raise ValueError(f'images[{kind!r}] are {batch.shape[-2]} x {batch.shape[-1]} pixels; '
                             f'multiples of {cell}, the cells of the last map, are required')
