"""Layers that are not ours, on a padded batch: each image's cells as if it were alone."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function
from torch.utils._pytree import tree_map_only

from ..functional.cells import Extents, over_valid_cells
from ..functional.convolutions import padding_cells, pair
from ..functional.masking import outside, pad_map
from ..functional.tracing import is_compiling
from . import masked
from .masked import Steps


class KeptOut(TorchFunctionMode):
    """Within it, what torch's spatial functions give for an image's cells is what they give for
    that image alone: padding lies to the right and below, and nothing reads it.

    Convolutions see zeros beyond each image's cells. BatchNorm that trains takes its statistics
    over the valid cells of the batch. Other functions that look at more than a cell (pooling,
    resizing, GroupNorm) go image by image over its own cells. All others work cell by cell and are
    left alone; :mod:`.trial` finds networks with a layer for which that is wrong.

    Which cells are an image's is known by the size of a map: maps of one size have the same cells,
    whatever way they came, as strides round up.

    With a tensor of sizes no number of them is looked at (:mod:`.masked`), so that code compiled
    with it holds for all batches; some functions have no form then, and say so. What is known of a
    map are the steps from a batch to it, not its cells.

    Args:
        images: pixels (rows, columns) that each image fills; or a tensor (B, 2), which numbers
            become within code that is compiled.
        hw_shape: those of the batch.
    """

    def __init__(self, images: Extents | Tensor, hw_shape: tuple[int, int]) -> None:
        super().__init__()
        if not isinstance(images, Tensor):
            images = torch.tensor(images) if is_compiling() else list(images)
        self.images: Any = images
        self.hw_shape = hw_shape
        # Lists: as keys of a table, sizes would be constants of code that is compiled.
        self.sizes: list[tuple[tuple[int, int], Any]] = [
            (hw_shape, masked.BATCH if isinstance(images, Tensor) else images)]
        self.masks: list[tuple[tuple[int, int], Tensor]] = []
        self.outside = ExitStack()

    def __enter__(self) -> KeptOut:
        # What was compiled outside would hold every batch's numbers: a graph for each batch. Code
        # that enters it itself holds for all batches.
        if not is_compiling():
            if hasattr(torch.compiler, 'set_stance'):
                self.outside.enter_context(torch.compiler.set_stance('force_eager'))
            self.outside.enter_context(self.computed_again())
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.outside.close()

    def computed_again(self) -> AbstractContextManager[Any]:
        """What is checkpointed meanwhile, by whatever wrapper, is computed again within this."""
        library: Any = torch.utils.checkpoint
        checkpoint, generator = library.checkpoint, library._checkpoint_without_reentrant_generator

        def run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            with nullcontext() if KeptOut.current() is not None else self:
                return function(*args, **kwargs)

        def apply(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
            # The reentrant kind gives nothing for maps in a tuple, as a neck's, a gradient.
            return checkpoint(function, *args, use_reentrant=False, preserve_rng_state=preserve)
        return mock.patch.multiple(  # all that calls of either kind come to
            library, CheckpointFunction=SimpleNamespace(apply=apply),
            _checkpoint_without_reentrant_generator=lambda function, *args, **kwargs: generator(
                partial(run, function), *args, **kwargs))

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (),
                           kwargs: Mapping[str, Any] | None = None) -> Any:
        if func is KeptOut.current:
            return self
        if func in REFUSED:
            raise NotImplementedError(
                f'{getattr(func, "__name__", func)} reads beyond an image of a padded batch, and '
                f'has no form that does not')
        form = FORMS.get(func)
        if form is not None and isinstance(self.images, Tensor):
            form = MASKED.get(func, masked.refused)
        return (func(*args, **(kwargs or {})) if form is None
                else form(self, func, *args, **(kwargs or {})))

    @staticmethod
    def current() -> KeptOut | None:
        """The innermost one, within which this is called."""
        if not has_torch_function((None,)):  # no mode at all
            return None
        # torch hands a function from mode to mode, innermost first, until one of them answers.
        return handle_torch_function(KeptOut.current, (None,))  # type: ignore[no-any-return]

    def cells_at(self, hw_shape: tuple[int, int]) -> Any:
        """Valid rows and columns of each image in maps of a size, or, with a tensor of sizes, the
        steps to them; None if none came yet."""
        # From the newest: of symbols each question that is not the same one again is a guard.
        return next((cells for size, cells in reversed(self.sizes) if size == hw_shape), None)

    def cells_of(self, x: Tensor) -> Any:
        """The same for a map (B, C, H, W).

        Raises:
            ValueError: for a map of a size that did not come from the batch.
        """
        found = self.cells_at((x.shape[-2], x.shape[-1]))
        if found is None or x.dim() != 4 or len(x) != len(self.images):
            raise ValueError(f'a map of {tuple(x.shape)} did not come from the batch by layers '
                             f'that are known; sizes that did: '
                             f'{[hw_shape for hw_shape, _ in self.sizes]}')
        return found

    def extents(self, x: Tensor) -> Any:
        """Valid rows and columns of a map (B, C, H, W), image by image: a list, or a tensor (B, 2)
        where sizes are one.

        Raises:
            ValueError: for a map of a size that did not come from the batch.
        """
        found = self.cells_of(x)
        if not isinstance(self.images, Tensor):
            return found
        return torch.stack([masked.reached(side, axis) for side, axis in zip(
            self.images.unbind(1), found, strict=True)], 1)

    def remember(self, x: Tensor, cells: Extents | Steps) -> Tensor:
        """Remember which cells of maps of this size are valid.

        Raises:
            ValueError: if other ones are for another map of the size.
        """
        hw_shape = (x.shape[-2], x.shape[-1])
        known = self.cells_at(hw_shape)
        if known is None:
            self.sizes.append((hw_shape, cells))
        elif known != cells and not masked.same(known, cells, hw_shape):
            raise ValueError(f'maps of {hw_shape} hold {known} cells of the images by one way and '
                             f'{cells} by another')
        return x

    def mask(self, x: Tensor) -> Tensor | None:
        """Padding mask (B, H, W) of a map; None where all of it is valid, as far as is known."""
        hw_shape = (x.shape[-2], x.shape[-1])
        symbols = isinstance(self.images, Tensor)
        if not symbols and all(each == hw_shape for each in self.extents(x)):
            return None
        for size, known in reversed(self.masks):
            if size == hw_shape and known.device == x.device:
                return known
        extents = self.extents(x)
        if symbols:
            mask = outside(extents.to(x.device), hw_shape)
        else:
            mask = torch.ones(len(extents), *hw_shape, dtype=torch.bool, device=x.device)
            for image, (rows, cols) in enumerate(extents):  # numbers that no device is waited for
                mask[image, :rows, :cols] = False
        self.masks.append((hw_shape, mask))
        return mask

    def cleared(self, x: Tensor) -> Tensor:
        """The map with zeros on padding."""
        mask = self.mask(x)
        return x if mask is None else x.masked_fill(mask[:, None], 0)


def conv2d(kept: KeptOut, func: Callable[..., Tensor], input: Tensor, weight: Tensor,
           bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
           groups: int = 1) -> Tensor:
    """``F.conv2d`` that sees zeros beyond each image's cells."""
    cells = kept.cells_of(input)
    padding = padding_cells(padding, weight.shape[2:], dilation)
    wide = any(side > 1 for side in weight.shape[2:]) or any(padding)
    out = func(kept.cleared(input) if wide else input, weight, bias, stride, padding, dilation,
               groups)
    return kept.remember(out, convolved(cells, weight.shape[2:], stride, padding, dilation))


def convolved(cells: Any, kernel: Sequence[int], stride: Any, padding: Any, dilation: Any) -> Any:
    """Extents behind a convolution, or the steps to them."""
    steps = masked.stepped(cells if isinstance(cells, tuple) else masked.BATCH, kernel, stride,
                           padding, dilation)
    return steps if isinstance(cells, tuple) else masked.all_reached(cells, steps)


def batch_norm(kept: KeptOut, func: Callable[..., Tensor], input: Tensor,
               running_mean: Tensor | None, running_var: Tensor | None,
               weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False,
               momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
    """``F.batch_norm`` with the statistics of valid cells."""
    def norm(cells: Tensor) -> Tensor:
        return func(cells, running_mean, running_var, weight, bias, training, momentum, eps)
    if not training or input.dim() != 4 or kept.mask(input) is None:
        return norm(input)
    extents = kept.extents(input)
    return kept.remember(over_valid_cells(norm, input, extents), extents)


def by_image(kept: KeptOut, func: Callable[..., Tensor], input: Tensor, *args: Any, **kwargs: Any
             ) -> Tensor:
    """Any function from maps to maps, over each image's own cells."""
    extents = kept.extents(input)
    shapes, options = tree_map_only(Tensor, _shape, (args, kwargs))
    full = func(_shape(input), *shapes, **options).shape[-2:]
    return _joined(kept, [func(input[i:i + 1, :, :rows, :cols], *args, **kwargs)
                          for i, (rows, cols) in enumerate(extents)], full,
                   pooled=func in POOLED)


def interpolate(kept: KeptOut, func: Callable[..., Tensor], input: Tensor, size: Any = None,
                scale_factor: Any = None, *args: Any, **kwargs: Any) -> Tensor:
    """``F.interpolate`` of each image to the cells that it has at that size."""
    if size is None:
        return by_image(kept, func, input, None, scale_factor, *args, **kwargs)
    full = (int(pair(size)[0]), int(pair(size)[1]))
    targets = kept.cells_at(full)
    if targets is None:
        raise ValueError(f'a map of {tuple(input.shape)} is resized to {full}, at which the cells '
                         f'of the images are not known')
    return _joined(kept, [func(input[i:i + 1, :, :rows, :cols], target, None, *args, **kwargs)
                          for i, ((rows, cols), target)
                          in enumerate(zip(kept.extents(input), targets, strict=True))], full)


def _joined(kept: KeptOut, maps: list[Tensor], full: Sequence[int], *, pooled: bool = False
            ) -> Tensor:
    """One batch (B, C, H, W) of maps (1, C, H', W'), each cut to the cells that its image has at
    this size: enlarged by two, a map that was halved has one too many. What is pooled to as many
    cells of every image is not cut; where other maps have its size, it gets another one."""
    hw_shape = (int(full[0]), int(full[1]))
    own = [(m.shape[-2], m.shape[-1]) for m in maps]
    while pooled and kept.cells_at(hw_shape) not in (None, own):
        hw_shape = (hw_shape[0] + 1, hw_shape[1] + 1)
    known = kept.cells_at(hw_shape) or own
    if not all(has[0] >= needs[0] and has[1] >= needs[1]
               for has, needs in zip(own, known, strict=True)):
        raise ValueError(f'maps of {own} cells are too small for the {known} that the images have '
                         f'in maps of {hw_shape}')
    padded = [pad_map(m[..., :rows, :cols], hw_shape)
              for m, (rows, cols) in zip(maps, known, strict=True)]
    return kept.remember(torch.cat(padded), known)


def _shape(x: Tensor) -> Tensor:
    """A tensor without numbers: nothing is computed, and no device is waited for."""
    return torch.empty_like(x, device='meta')


#: Functions that give as many cells of every image.
POOLED = {F.adaptive_avg_pool2d, F.adaptive_max_pool2d}
#: Functions that look at more than one cell, and their forms here.
FORMS: dict[Any, Callable[..., Tensor]] = {
    F.conv2d: conv2d, F.batch_norm: batch_norm, F.interpolate: interpolate,
    **dict.fromkeys((
        *POOLED, F.max_pool2d, F.avg_pool2d, F.lp_pool2d,
        F.conv_transpose2d, F.group_norm, F.instance_norm, F.pixel_shuffle, F.pixel_unshuffle),
        by_image)}
#: Functions that look at more than one cell, for which there is none.
REFUSED = {F.pad, F.conv1d, F.conv3d, F.unfold, F.fold, F.grid_sample, F.max_unpool2d, torch.roll,
           F.local_response_norm, torch.stft}
#: Those for a tensor of sizes.
MASKED = {F.conv2d: conv2d, **masked.FORMS}
