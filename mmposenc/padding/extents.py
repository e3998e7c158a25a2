"""Runs layers of other libraries on padded batches: results do not depend on the padding."""
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
    """A context in which torch's spatial functions ignore padding: the valid cells of each image
    get the values that they get for the image alone. Padding is at the right and bottom.

    Convolutions read zeros on padding. BatchNorm in training takes statistics over the valid cells
    of the batch. Other functions that combine cells (pooling, resizing, GroupNorm) run on the valid
    cells of one image at a time. All other functions work cell by cell and are not changed;
    :mod:`.trial` finds networks with a layer for which this is wrong.

    The size of a map determines its valid cells, because strides round up: all maps of one size
    have the same valid cells.

    If the image sizes are a tensor, its values are not read (:mod:`.masked`), so that compiled code
    is valid for all batches. Some functions have no such form and raise NotImplementedError. Then
    the steps from the batch to a map are recorded instead of its valid cells.

    Args:
        images: (rows, columns) of each image in pixels; in compiled code a tensor (B, 2).
        hw_shape: (rows, columns) of the batch in pixels.
    """

    def __init__(self, images: Extents | Tensor, hw_shape: tuple[int, int]) -> None:
        super().__init__()
        if not isinstance(images, Tensor):
            images = torch.tensor(images) if is_compiling() else list(images)
        self.images: Any = images
        self.hw_shape = hw_shape
        # Lists, since sizes as keys of a dict would be constants in compiled code.
        self.sizes: list[tuple[tuple[int, int], Any]] = [
            (hw_shape, masked.BATCH if isinstance(images, Tensor) else images)]
        self.masks: list[tuple[tuple[int, int], Tensor]] = []
        self.outside = ExitStack()

    def __enter__(self) -> KeptOut:
        # Code compiled outside would contain the numbers of a batch, with a graph for each batch.
        # Compiled code that enters the context itself is valid for all batches.
        if not is_compiling():
            if hasattr(torch.compiler, 'set_stance'):
                self.outside.enter_context(torch.compiler.set_stance('force_eager'))
            self.outside.enter_context(self.computed_again())
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.outside.close()

    def computed_again(self) -> AbstractContextManager[Any]:
        """Recompute checkpointed activations, of any wrapper, within this context."""
        library: Any = torch.utils.checkpoint
        checkpoint, generator = library.checkpoint, library._checkpoint_without_reentrant_generator

        def run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            with nullcontext() if KeptOut.current() is not None else self:
                return function(*args, **kwargs)

        def apply(function: Callable[..., Any], preserve: bool, *args: Any) -> Any:
            # The reentrant form gives no gradient to maps in a tuple, such as a neck's.
            return checkpoint(function, *args, use_reentrant=False, preserve_rng_state=preserve)
        return mock.patch.multiple(  # every call ends in one of these functions
            library, CheckpointFunction=SimpleNamespace(apply=apply),
            _checkpoint_without_reentrant_generator=lambda function, *args, **kwargs: generator(
                function if KeptOut.current() is None else partial(run, function),
                *args, **kwargs))

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (),
                           kwargs: Mapping[str, Any] | None = None) -> Any:
        if func is KeptOut.current:
            return self
        if func in REFUSED:
            raise NotImplementedError(
                f'{getattr(func, "__name__", func)} reads the padding of a batch, and has no form '
                f'that ignores it')
        form = FORMS.get(func)
        if form is not None and isinstance(self.images, Tensor):
            form = MASKED.get(func, masked.refused)
        return (func(*args, **(kwargs or {})) if form is None
                else form(self, func, *args, **(kwargs or {})))

    @staticmethod
    def current() -> KeptOut | None:
        """The innermost active context, or None."""
        if not has_torch_function((None,)):  # no mode at all
            return None
        # torch passes a function to each active mode, innermost first, until one returns a result.
        return handle_torch_function(KeptOut.current, (None,))  # type: ignore[no-any-return]

    def cells_at(self, hw_shape: tuple[int, int]) -> Any:
        """Valid rows and columns of each image in maps of a size, or the steps to them if image
        sizes are a tensor; None for a size that has not occurred."""
        # The newest first: for symbolic sizes each new comparison adds a guard.
        return next((cells for size, cells in reversed(self.sizes) if size == hw_shape), None)

    def cells_of(self, x: Tensor) -> Any:
        """:meth:`cells_at` for a map (B, C, H, W).

        Raises:
            ValueError: no map of this size was computed from the batch.
        """
        found = self.cells_at((x.shape[-2], x.shape[-1]))
        if found is None or x.dim() != 4 or len(x) != len(self.images):
            raise ValueError(f'a map of {tuple(x.shape)} was not computed from the batch by '
                             f'supported layers; known sizes: '
                             f'{[hw_shape for hw_shape, _ in self.sizes]}')
        return found

    def extents(self, x: Tensor) -> Any:
        """Valid (rows, columns) of each image in a map (B, C, H, W): a list, or a tensor (B, 2) if
        image sizes are a tensor.

        Raises:
            ValueError: no map of this size was computed from the batch.
        """
        found = self.cells_of(x)
        if not isinstance(self.images, Tensor):
            return found
        return torch.stack([masked.reached(side, axis) for side, axis in zip(
            self.images.unbind(1), found, strict=True)], 1)

    def remember(self, x: Tensor, cells: Extents | Steps) -> Tensor:
        """Record which cells of maps of this size are valid.

        Raises:
            ValueError: another map of this size has other valid cells.
        """
        hw_shape = (x.shape[-2], x.shape[-1])
        known = self.cells_at(hw_shape)
        if known is None:
            self.sizes.append((hw_shape, cells))
        elif known != cells and not masked.same(known, cells, hw_shape):
            raise ValueError(f'two maps of size {hw_shape} have different valid cells: {known} and '
                             f'{cells}')
        return x

    def mask(self, x: Tensor) -> Tensor | None:
        """Padding mask (B, H, W) of a map, True = padding; None if there is no known padding."""
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
            for image, (rows, cols) in enumerate(extents):  # Python numbers: no synchronisation
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
    """``F.conv2d`` that reads zeros on padding."""
    cells = kept.cells_of(input)
    padding = padding_cells(padding, weight.shape[2:], dilation)
    wide = any(side > 1 for side in weight.shape[2:]) or any(padding)
    out = func(kept.cleared(input) if wide else input, weight, bias, stride, padding, dilation,
               groups)
    return kept.remember(out, convolved(cells, weight.shape[2:], stride, padding, dilation))


def convolved(cells: Any, kernel: Sequence[int], stride: Any, padding: Any, dilation: Any) -> Any:
    """Valid (rows, columns) after a convolution, or the steps to them."""
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
    """Any function from maps to maps, on the valid cells of one image at a time."""
    extents = kept.extents(input)
    shapes, options = tree_map_only(Tensor, _shape, (args, kwargs))
    full = func(_shape(input), *shapes, **options).shape[-2:]
    return _joined(kept, [func(input[i:i + 1, :, :rows, :cols], *args, **kwargs)
                          for i, (rows, cols) in enumerate(extents)], full,
                   pooled=func in POOLED)


def interpolate(kept: KeptOut, func: Callable[..., Tensor], input: Tensor, size: Any = None,
                scale_factor: Any = None, *args: Any, **kwargs: Any) -> Tensor:
    """``F.interpolate`` of each image to its valid cells at the new size."""
    if size is None:
        return by_image(kept, func, input, None, scale_factor, *args, **kwargs)
    full = (int(pair(size)[0]), int(pair(size)[1]))
    targets = kept.cells_at(full)
    if targets is None:
        raise ValueError(f'a map of {tuple(input.shape)} is resized to {full}, but valid cells are '
                         f'not known at this size')
    return _joined(kept, [func(input[i:i + 1, :, :rows, :cols], target, None, *args, **kwargs)
                          for i, ((rows, cols), target)
                          in enumerate(zip(kept.extents(input), targets, strict=True))], full)


def _joined(kept: KeptOut, maps: list[Tensor], full: Sequence[int], *, pooled: bool = False
            ) -> Tensor:
    """Join maps (1, C, H', W') to a batch (B, C, H, W), each cut to its image's valid cells at this
    size (a map of odd size, halved and enlarged by two, has one cell too many). Maps pooled to the
    same number of cells are not cut; if other maps have that size, they get a different one."""
    hw_shape = (int(full[0]), int(full[1]))
    own = [(m.shape[-2], m.shape[-1]) for m in maps]
    while pooled and kept.cells_at(hw_shape) not in (None, own):
        hw_shape = (hw_shape[0] + 1, hw_shape[1] + 1)
    known = kept.cells_at(hw_shape) or own
    if not all(has[0] >= needs[0] and has[1] >= needs[1]
               for has, needs in zip(own, known, strict=True)):
        raise ValueError(f'maps of {own} cells are too small: images have {known} valid cells in '
                         f'maps of size {hw_shape}')
    padded = [pad_map(m[..., :rows, :cols], hw_shape)
              for m, (rows, cols) in zip(maps, known, strict=True)]
    return kept.remember(torch.cat(padded), known)


def _shape(x: Tensor) -> Tensor:
    """A tensor on the meta device: it computes shapes only."""
    return torch.empty_like(x, device='meta')


#: Functions whose output has the same number of cells for every image.
POOLED = {F.adaptive_avg_pool2d, F.adaptive_max_pool2d}
#: Functions that combine cells, and their forms here.
FORMS: dict[Any, Callable[..., Tensor]] = {
    F.conv2d: conv2d, F.batch_norm: batch_norm, F.interpolate: interpolate,
    **dict.fromkeys((
        *POOLED, F.max_pool2d, F.avg_pool2d, F.lp_pool2d,
        F.conv_transpose2d, F.group_norm, F.instance_norm, F.pixel_shuffle, F.pixel_unshuffle),
        by_image)}
#: Functions that combine cells and have no form here.
REFUSED = {F.pad, F.conv1d, F.conv3d, F.unfold, F.fold, F.grid_sample, F.max_unpool2d, torch.roll,
           F.local_response_norm, torch.stft}
#: The forms for image sizes in a tensor.
MASKED = {F.conv2d: conv2d, **masked.FORMS}
