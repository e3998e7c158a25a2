"""Finds by a trial on noise whether the networks of a model read padding."""
from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ..functional.cells import Extents
from ..functional.tracing import uncompiled
from .context import IgnorePadding
from .images import maps_of_valid_cells, padded_as_alone

#: The sizes in pixels of two images, whose halves are rounded at every stride, and of a batch with
#: both, in which even a map of stride 128 has padding.
IMAGES = [(97, 250), (225, 122)]
BATCH = (256, 256)
#: A function that computes the maps of a model's networks for a batch (B, C, H, W), in nested
#: lists.
Maps = Callable[[Any, Tensor, 'IgnorePadding | None'], Any]


class Poisoned(IgnorePadding):
    """An :class:`IgnorePadding` that writes NaN into the padding of every map: a layer that reads
    padding returns NaN, even with a weight of zero."""

    def with_extents(self, x: Tensor, extents: Extents) -> Tensor:
        """Record the valid cells, and return the map with NaN in its padding."""
        mask = self.mask(super().with_extents(x, extents))
        return x if mask is None else x.masked_fill(mask[:, None], torch.nan)

    def valid_cells_of_images(self, maps: Any) -> list[Tensor]:
        """The valid cells of each image, in nested lists of maps."""
        return [cells for i in range(len(self.images))
                for cells in tree_leaves(maps_of_valid_cells(maps, i, self))]


def why_padding_is_read(model: Any, maps: Maps) -> str | None:
    """Why maps of an image in a batch differ from those of the image alone, in words; None if they
    do not.

    Two images of noise go through the model's networks: in a batch with NaN as padding, and each
    alone. Random states do not change.

    Args:
        model: a model of mmdet or mmseg in evaluation mode.
        maps: computes the maps of its networks.
    """
    like, mean = next(model.parameters()), getattr(model.data_preprocessor, 'mean', None)
    context = Poisoned(IMAGES, BATCH)
    noise = torch.randn(len(IMAGES), 3 if mean is None else mean.numel(), *BATCH,
                        generator=torch.Generator().manual_seed(0)).to(like)
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.random.fork_rng([like.device] if like.is_cuda else []))
        stack.enter_context(torch.autocast(like.device.type, enabled=False))
        stack.enter_context(torch.backends.cudnn.flags(enabled=True, allow_tf32=False))
        stack.enter_context(uncompiled())
        trace = _start_trace(model, context, stack)
        try:
            batched = context.valid_cells_of_images(
                maps(model, context.with_extents(noise, IMAGES), context))
            alone = [each for image, size in zip(noise, IMAGES, strict=True)
                     for each in _maps_alone(model, maps, image, size)]
        except Exception as error:  # A layer may raise anything.
            return f'{trace.last_layer}: {error}'
    if not all(cells.isfinite().all() for cells in batched):
        return f'{trace.reader or trace.last_layer} reads padding'
    rounding = torch.finfo(like.dtype).eps ** 0.5
    if not all(one.shape == other.shape and (one - other).abs().max() <= rounding * one.abs().max()
               for one, other in zip(alone, batched, strict=True)):
        return 'maps of an image are others where its batch is larger'
    return None


def _maps_alone(model: Any, maps: Maps, image: Tensor, size: tuple[int, int]) -> list[Tensor]:
    """The valid cells of the maps of an image (C, H, W), of which ``size`` is not padding."""
    alone = padded_as_alone(image[None, :, :size[0], :size[1]], model.data_preprocessor)
    hw_shape = (alone.shape[-2], alone.shape[-1])
    context = IgnorePadding([size], hw_shape) if hw_shape != size else None
    return tree_leaves(maps_of_valid_cells(maps(model, alone, context), 0, context))


@dataclass
class _NaNTrace:
    """Remembers the layer that was called last, and the first layer that returned NaN in valid
    cells."""

    last_layer: str = 'backbone'
    reader: str = ''


def _start_trace(model: nn.Module, context: Poisoned, stack: ExitStack) -> _NaNTrace:
    """Watch the layers of a model until the stack is closed."""
    trace = _NaNTrace()

    def note_layer(label: str, module: nn.Module, args: object) -> None:
        trace.last_layer = label

    def note_reader(label: str, module: nn.Module, args: object, out: object) -> None:
        maps = [x for x in tree_leaves(out) if isinstance(x, Tensor) and x.dim() == 4
                and len(x) == len(IMAGES) and context.known_extents((x.shape[-2], x.shape[-1]))]
        if not trace.reader and not all(
                cells.isfinite().all() for cells in context.valid_cells_of_images(maps)):
            trace.reader = label

    for name, module in model.named_modules():
        label = f'{name or "the model"} ({type(module).__module__}.{type(module).__name__})'
        stack.callback(module.register_forward_pre_hook(partial(note_layer, label)).remove)
        stack.callback(module.register_forward_hook(partial(note_reader, label)).remove)
    return trace
