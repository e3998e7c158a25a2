"""Finds by a trial on noise whether the networks of a model read padding."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from .extents import KeptOut
from .images import as_alone, own_cells

#: Sizes in pixels of two images, whose halves are rounded at every stride, and of a batch of them,
#: in which even a map of stride 128 has padding.
IMAGES = [(97, 250), (225, 122)]
BATCH = (256, 256)


class Poisoned(KeptOut):
    """A :class:`KeptOut` that writes NaN into the padding of every map: a layer that reads padding
    returns NaN, even with a weight of zero."""

    def remember(self, x: Tensor, cells: Any) -> Tensor:
        """The map, with NaN in its padding."""
        mask = self.mask(super().remember(x, cells))
        return x if mask is None else x.masked_fill(mask[:, None], torch.nan)

    def own(self, maps: Any) -> list[Tensor]:
        """The valid cells of each image in nested lists of maps."""
        return [own for i in range(len(self.images))
                for own in tree_leaves(own_cells(maps, i, self))]


def what_reads_padding(model: Any, maps: Callable[[Tensor, KeptOut | None], Any]) -> str | None:
    """Why maps of an image in a batch differ from those of the image alone, in words; None if they
    do not.

    Two images of noise go through the model's networks in a batch with NaN as padding. In
    evaluation mode, where no layer is random, each also goes through alone. Statistics and random
    states do not change.

    Args:
        model: a model of mmdet or mmseg.
        maps: computes the maps of its networks for a batch (B, C, H, W), in nested lists.
    """
    like, mean = next(model.parameters()), getattr(model.data_preprocessor, 'mean', None)
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    kept = Poisoned(IMAGES, BATCH)
    seen = _Seen(kept)
    alone: list[Any] = []
    try:
        with ExitStack() as stack:
            for each in (torch.no_grad(), seen.watching(model),
                         # Other processes may not run the trial now.
                         mock.patch.object(torch.distributed, 'is_initialized', lambda: False),
                         torch.random.fork_rng([like.device] if like.is_cuda else []),
                         torch.autocast(like.device.type, enabled=False),
                         torch.backends.cudnn.flags(enabled=True, allow_tf32=False)):
                stack.enter_context(each)  # type: ignore[arg-type]
            if hasattr(torch.compiler, 'set_stance'):
                stack.enter_context(torch.compiler.set_stance('force_eager'))
            noise = torch.randn(len(IMAGES), 3 if mean is None else mean.numel(), *BATCH,
                                generator=torch.Generator().manual_seed(0)).to(like)
            batched = kept.own(maps(kept.remember(noise.clone(), IMAGES), kept))
            for image, (rows, cols) in zip(noise, [] if model.training else IMAGES, strict=False):
                one = as_alone(image[None, :, :rows, :cols], model.data_preprocessor)
                full = (one.shape[-2], one.shape[-1])
                by = KeptOut([(rows, cols)], full) if full != (rows, cols) else None
                alone += tree_leaves(own_cells(maps(one, by), 0, by))
    except Exception as error:  # a layer may raise anything
        return f'{seen.last}: {error}'
    finally:
        for buffer, value in before:
            buffer.copy_(value)
    if not all(own.isfinite().all() for own in batched):
        return f'{seen.reader or seen.last} reads padding'
    rounding = torch.finfo(like.dtype).eps ** 0.5
    if not all(one.shape == other.shape and (one - other).abs().max() <= rounding * one.abs().max()
               for one, other in zip(alone, batched, strict=False)):
        return 'maps of an image are others where its batch is larger'
    return None


class _Seen:
    """Records the layer that was called last, and the first layer with NaN in valid cells."""

    def __init__(self, kept: Poisoned) -> None:
        self.kept = kept
        self.last, self.reader = 'backbone', ''

    @contextmanager
    def watching(self, model: Any) -> Iterator[None]:
        hooks = []
        for name, module in model.named_modules():
            label = f'{name or "the model"} ({type(module).__module__}.{type(module).__name__})'
            hooks += [module.register_forward_pre_hook(partial(self._enter, label)),
                      module.register_forward_hook(partial(self._leave, label))]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _enter(self, label: str, module: Any, args: Any) -> None:
        self.last = label

    def _leave(self, label: str, module: Any, args: Any, out: Any) -> None:
        maps = [x for x in tree_leaves(out) if isinstance(x, Tensor) and x.dim() == 4
                and len(x) == len(IMAGES) and self.kept.cells_at((x.shape[-2], x.shape[-1]))]
        if not self.reader and not all(own.isfinite().all() for own in self.kept.own(maps)):
            self.reader = label
