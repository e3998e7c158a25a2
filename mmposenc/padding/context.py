"""Runs layers of other libraries on padded batches: results do not depend on the padding."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function
from torch.utils._pytree import tree_map_only

from ..functional.cells import Extents
from ..functional.convolutions import padding_cells, pair
from ..functional.masking import pad_map


class IgnorePadding(TorchFunctionMode):
    """A context in which torch's spatial functions ignore padding: the valid cells of each image
    get the values that they get for the image alone. Padding is at the right and bottom.

    Convolutions read zeros on padding. Other functions that combine cells (pooling, resizing,
    GroupNorm, BatchNorm with the statistics of its input) run on the valid cells of one image at a
    time. All other functions work cell by cell and are not changed; :mod:`.trial` finds networks
    with a layer for which this is wrong.

    The size of a map determines its valid cells, because strides round up: all maps of one size
    have the same valid cells.

    Args:
        images: (rows, columns) of each image in pixels.
        hw_shape: (rows, columns) of the batch in pixels.
    """

    def __init__(self, images: Extents, hw_shape: tuple[int, int]) -> None:
        super().__init__()
        self.images = list(images)
        self.hw_shape = hw_shape
        #: The layer that is running and masks padding itself, and the valid cells of its maps.
        self.masking_layer: tuple[nn.Module, list[Extents]] | None = None
        self._extents: dict[tuple[int, int], Extents] = {hw_shape: self.images}
        self._masks: dict[tuple[int, int, torch.device], Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (),
                           kwargs: Mapping[str, object] | None = None) -> Any:
        if func is IgnorePadding.current:
            return self
        kwargs = kwargs or {}
        if self.masking_layer is not None:
            return func(*args, **kwargs)
        if func in REFUSED:
            raise NotImplementedError(f'{getattr(func, "__name__", func)} reads the padding of a '
                                      f'batch, and IgnorePadding does not know how to replace it')
        if func in REPLACED:
            return REPLACED[func](self, func, *args, **kwargs)
        return func(*args, **kwargs)

    @staticmethod
    def current() -> IgnorePadding | None:
        """The innermost active context of this thread, or None."""
        if not has_torch_function((None,)):  # No mode is active at all.
            return None
        # torch passes a function to each active mode, the innermost first, until one returns a
        # result.
        return handle_torch_function(
            IgnorePadding.current, (None,))

    def known_extents(self, hw_shape: tuple[int, int]) -> Extents | None:
        """The valid (rows, columns) of each image in maps of this size; None for an unknown size.
        """
        return self._extents.get(hw_shape)

    def extents(self, x: Tensor) -> Extents:
        """The valid (rows, columns) of each image in a map (B, C, H, W).

        Raises:
            ValueError: no map of this size was computed from the batch.
        """
        extents = self.known_extents((x.shape[-2], x.shape[-1]))
        if extents is None or x.dim() != 4 or len(x) != len(self.images):
            raise ValueError(f'a map of {tuple(x.shape)} was not computed from the batch by '
                             f'supported layers; known sizes: {list(self._extents)}')
        return extents

    def with_extents(self, x: Tensor, extents: Extents) -> Tensor:
        """Record which cells of maps of this size are valid.

        Raises:
            ValueError: another map of this size has other valid cells.
        """
        hw_shape = (x.shape[-2], x.shape[-1])
        known = self._extents.setdefault(hw_shape, extents)
        if known != extents:
            raise ValueError(f'two maps of size {hw_shape} have different valid cells: {known} and '
                             f'{extents}')
        return x

    def mask(self, x: Tensor) -> Tensor | None:
        """The padding mask (B, H, W) of a map, True = padding; None if it has no padding."""
        extents, hw_shape = self.extents(x), (x.shape[-2], x.shape[-1])
        if all(extent == hw_shape for extent in extents):
            return None
        key = (*hw_shape, x.device)
        if key not in self._masks:
            mask = torch.ones(len(extents), *hw_shape, dtype=torch.bool, device=x.device)
            # Python numbers, so that no device has to be waited for.
            for image, (rows, cols) in enumerate(extents):
                mask[image, :rows, :cols] = False
            self._masks[key] = mask
        return self._masks[key]

    def cleared(self, x: Tensor) -> Tensor:
        """Set the padding of a map to zero."""
        mask = self.mask(x)
        return x if mask is None else x.masked_fill(mask[:, None], 0)


def conv2d(context: IgnorePadding, func: Callable[..., Tensor], input: Tensor, weight: Tensor,
           bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
           groups: int = 1) -> Tensor:
    """Replaces ``F.conv2d`` by a convolution that reads zeros on padding."""
    extents, kernel = context.extents(input), weight.shape[2:]
    padding = padding_cells(padding, kernel, dilation)
    if any(side > 1 for side in kernel) or any(padding):
        input = context.cleared(input)
    out = func(input, weight, bias, stride, padding, dilation, groups)
    return context.with_extents(out, convolved_extents(extents, kernel, stride, padding, dilation))


def convolved_extents(extents: Extents, kernel: Sequence[int], stride: Any, padding: Any,
                      dilation: Any) -> Extents:
    """The valid (rows, columns) of each image after a convolution."""
    axes = list(zip(kernel, pair(stride), pair(padding), pair(dilation), strict=True))

    def cells(side: int, axis: int) -> int:
        taps, step, pad, dilate = axes[axis]
        return (side + 2 * pad - dilate * (taps - 1) - 1) // step + 1
    return [(cells(rows, 0), cells(cols, 1)) for rows, cols in extents]


def batch_norm(context: IgnorePadding, func: Callable[..., Tensor], input: Tensor,
               running_mean: Tensor | None, running_var: Tensor | None,
               weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False,
               *args: object, **kwargs: object) -> Tensor:
    """Replaces ``F.batch_norm``: running statistics apply to each cell; otherwise each image has
    statistics of its own."""
    arguments = (running_mean, running_var, weight, bias, training, *args)
    if not training:
        return func(input, *arguments, **kwargs)
    return by_image(context, func, input, *arguments, **kwargs)


def by_image(context: IgnorePadding, func: Callable[..., Tensor], input: Tensor, *args: object,
             **kwargs: object) -> Tensor:
    """Apply a function from maps to maps to the valid cells of one image at a time."""
    extents = context.extents(input)
    shapes, options = tree_map_only(Tensor, _meta_copy, (args, kwargs))
    full = func(_meta_copy(input), *shapes, **options).shape[-2:]
    return _joined_maps(context, [func(input[i:i + 1, :, :rows, :cols], *args, **kwargs)
                                  for i, (rows, cols) in enumerate(extents)], full,
                        pooled=func in POOLED)


def interpolate(context: IgnorePadding, func: Callable[..., Tensor], input: Tensor,
                size: Any = None, scale_factor: Any = None, *args: object, **kwargs: object
                ) -> Tensor:
    """Replaces ``F.interpolate``: each image is resized to its valid cells at the new size."""
    if size is None:
        return by_image(context, func, input, None, scale_factor, *args, **kwargs)
    full = (int(pair(size)[0]), int(pair(size)[1]))
    targets = context.known_extents(full)
    if targets is None:
        raise ValueError(f'a map of {tuple(input.shape)} is resized to {full}, but valid cells are '
                         f'not known at this size')
    resized = [func(input[i:i + 1, :, :rows, :cols], target, None, *args, **kwargs)
               for i, ((rows, cols), target)
               in enumerate(zip(context.extents(input), targets, strict=True))]
    return _joined_maps(context, resized, full)


def _joined_maps(context: IgnorePadding, maps: list[Tensor], full: Sequence[int], *,
                 pooled: bool = False) -> Tensor:
    """Join maps (1, C, H', W') to a batch (B, C, H, W), each cut to its image's valid cells at this
    size (a map of odd size, halved and enlarged by two, has one cell too many). Maps pooled to the
    same number of cells are not cut; if other maps have that size, they get a different one."""
    hw_shape = (int(full[0]), int(full[1]))
    sizes = [(x.shape[-2], x.shape[-1]) for x in maps]
    while pooled and context.known_extents(hw_shape) not in (None, sizes):
        hw_shape = (hw_shape[0] + 1, hw_shape[1] + 1)
    known = context.known_extents(hw_shape) or sizes
    if not all(rows >= needed[0] and cols >= needed[1]
               for (rows, cols), needed in zip(sizes, known, strict=True)):
        raise ValueError(f'maps of {sizes} cells are too small: images have {known} valid cells in '
                         f'maps of size {hw_shape}')
    padded = [pad_map(x[..., :rows, :cols], hw_shape)
              for x, (rows, cols) in zip(maps, known, strict=True)]
    return context.with_extents(torch.cat(padded), known)


def _meta_copy(x: Tensor) -> Tensor:
    """A tensor on the meta device, which computes only shapes."""
    return torch.empty_like(x, device='meta')


#: Functions whose output has the same number of cells for every image.
POOLED = {F.adaptive_avg_pool2d, F.adaptive_max_pool2d}
#: Functions that combine cells, and what replaces them.
REPLACED: dict[Any, Callable[..., Tensor]] = {
    F.conv2d: conv2d, F.batch_norm: batch_norm, F.interpolate: interpolate,
    **dict.fromkeys((
        *POOLED, F.max_pool2d, F.avg_pool2d, F.lp_pool2d,
        F.conv_transpose2d, F.group_norm, F.instance_norm, F.pixel_shuffle, F.pixel_unshuffle),
        by_image)}
#: Functions that combine cells and are not replaced.
REFUSED = {F.pad, F.conv1d, F.conv3d, F.unfold, F.fold, F.grid_sample, F.max_unpool2d, torch.roll,
           F.local_response_norm, torch.stft}
