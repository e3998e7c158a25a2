"""Backbone, neck and head of a model that padding is kept out of, as one graph for all batches."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..functional.grids import whole_cells
from ..functional.masking import pad_map
from .extents import KeptOut
from .known import COMPILED, unknown_layers
from .masked import Steps, all_reached, shrunk
from .models import HEADS, NETWORKS, MapHead, PaddingFree, losses_of, note_maps, parts

#: A batch is filled up to whole cells of so many pixels, and compiled code is told how many there
#: are: a map of half the size then has 16 times as many, not a rounding within roundings, whose
#: formulas keep a compiler busy for ever. (What is filled up is padding, which nothing reads.)
CELL = 32


def compile_networks(model: nn.Module, **options: Any) -> list[nn.Module]:
    """Compile what of a model :func:`~mmposenc.padding.keep_padding_out` lets see a whole batch.

    That is backbone, neck and the head's maps, in one graph, if every layer of them has a form that
    looks at no number (:data:`.known.COMPILED`); a backbone of this project is no part of it, whose
    blocks are compiled by themselves. Sizes of images are a tensor, so that the graph holds for
    those of all batches; whose height and width are symbols with ``dynamic=True``.

    Args:
        model: as :func:`keep_padding_out` returns it, changed in place.
        options: of ``torch.compile``.

    Returns:
        The networks of the graph; none, and the model left as it is, where a layer of what sees a
        whole batch (backbone, neck, heads with BatchNorms) has no such form. Those of a model that
        is compiled stay.
    """
    if not isinstance(model, PaddingFree):
        return []
    if model.compiled is not None:
        return model.compiled.networks
    networks = [part for part in parts(model, NETWORKS) if not hasattr(part, 'mask_padding')]
    # One with BatchNorms sees a whole batch while it trains, compiled or not: not without it.
    heads = [head for head in parts(model, HEADS)
             if isinstance(head, MapHead) or not _left_out(head)]
    if any(_left_out(part) for part in networks + heads) or not networks + heads:
        return []
    for head in heads:
        note_maps(head)
    model.compiled = _Compiled(torch.compile(_seen, **options), networks + heads)
    return model.compiled.networks


class _Compiled:
    """Calls the graph, and says of its maps which cells are valid."""

    def __init__(self, seen: Callable[..., Any], networks: list[nn.Module]) -> None:
        self.seen, self.networks = seen, networks

    def __reduce__(self) -> Any:
        return type(None), ()  # a copy of the model, as an EMA keeps it, is not compiled

    @staticmethod
    def filled_up(batch: Tensor) -> Tensor:
        """A batch (B, C, H, W) with zeros to the right and below, up to whole cells."""
        height, width = (whole_cells(side, CELL) * CELL for side in batch.shape[-2:])
        return pad_map(batch, (height, width))

    def __call__(self, model: Any, batch: Tensor, inputs: Any, kept: KeptOut
                 ) -> tuple[Sequence[Tensor], dict[int, Any]]:
        heads = [head for head in parts(model, HEADS) if isinstance(head, MapHead)]
        whole = isinstance(inputs, Tensor)  # the backbone is part of it
        strides = None if whole else tuple(model.backbone.strides)
        cells = batch.unflatten(3, (-1, CELL)).unflatten(2, (-1, CELL))
        images = torch.tensor(kept.images).to(batch.device, non_blocking=True)
        maps, outs, steps = self.seen(model, heads, cells, None if whole else inputs, images,
                                       strides)
        for level, each in zip(maps, steps, strict=True):
            kept.note(level, all_reached(kept.images, each))
        return maps, {id(head): out for head, out in zip(heads, outs, strict=True)}


def _seen(model: Any, heads: list[nn.Module], cells: Tensor, inputs: Any, images: Tensor,
          strides: tuple[int, ...] | None) -> tuple[Sequence[Tensor], list[Any], list[Steps]]:
    """Maps of backbone and neck, of the heads, and the steps to those of the neck."""
    assert cells.shape[3] == cells.shape[5] == CELL  # which makes numbers of these two symbols
    batch = cells.flatten(4).flatten(2, 3)
    inputs = batch if strides is None else inputs
    kept = KeptOut(images, (batch.shape[-2], batch.shape[-1]))
    if strides is not None:
        for level, side in zip(inputs, strides, strict=True):
            kept.note(level, shrunk(side))
    with kept:
        maps = model.network_maps(inputs)
        outs = [head(maps) for head in heads]
    return maps, outs, [kept.noted(level) for level in maps]


def _left_out(network: nn.Module) -> bool:
    """Whether a layer of it has no form for a tensor of sizes, or is computed twice."""
    resized = getattr(network, 'upsample_cfg', None) or {'mode': 'nearest'}
    again = any(getattr(layer, 'with_cp', False) for layer in network.modules())
    return again or resized != {'mode': 'nearest'} or bool(
        unknown_layers(network, losses_of(network), COMPILED))
