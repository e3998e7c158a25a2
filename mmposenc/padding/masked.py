"""Forms of layers for image sizes in a tensor. They do not read its values, so code compiled from
them is valid for all sizes and paddings."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..functional.convolutions import pair
from ..functional.masking import weighted_batch_norm

if TYPE_CHECKING:
    from .extents import KeptOut

#: The number of valid cells of a map along an axis: each pair (offset, step) in turn changes n to
#: (n + offset) // step + 1.
Axis = tuple[tuple[int, int], ...]
#: The same for rows and for columns; empty for the batch itself.
Steps = tuple[Axis, Axis]
BATCH: Steps = ((), ())
Side = TypeVar('Side', int, Tensor)


def stepped(steps: Steps, kernel: Sequence[int], stride: Any, padding: Any, dilation: Any) -> Steps:
    """Steps to the output of a convolution or pooling."""
    return tuple(_joined(axis, 2 * pad - dilate * (taps - 1) - 1, step)  # type: ignore[return-value]
                 for axis, taps, step, pad, dilate in zip(
                     steps, kernel, pair(stride), pair(padding), pair(dilation), strict=True))


def _joined(axis: Axis, offset: int, step: int) -> Axis:
    """Add a pair. Successive roundings up, whose offset is -1, are merged, so that maps computed in
    two ways have the same steps if they have the same number of cells."""
    last = axis[-1] if axis else (-1, 1)
    if offset == last[0] == -1:
        step *= last[1]
        return (*axis[:-1], (-1, step)) if step > 1 else ()
    return (*axis, (offset, step))


def shrunk(side: int) -> Steps:
    """Steps from a batch to a map of stride ``side``."""
    return stepped(BATCH, (1, 1), side, 0, 1)


def same(known: Any, steps: Any, hw_shape: tuple[int, int]) -> bool:
    """Whether maps of a size have the same valid cells; a map of one cell always has."""
    return isinstance(known, tuple) and all(
        one == other or side == 1
        for one, other, side in zip(known, steps, hw_shape, strict=True))


def reached(side: Side, axis: Axis) -> Side:
    """Number of cells for a number of pixels, or for a tensor of them."""
    for offset, step in axis:
        side = (side + offset) // step + 1
    return side


def all_reached(images: list[tuple[int, int]], steps: Steps) -> list[tuple[int, int]]:
    """(rows, columns) in cells for images of (rows, columns) in pixels."""
    return [(reached(rows, steps[0]), reached(cols, steps[1])) for rows, cols in images]


def batch_norm(kept: KeptOut, func: Callable[..., Tensor], input: Tensor,
               running_mean: Tensor | None, running_var: Tensor | None,
               weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False,
               momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
    """``F.batch_norm`` with the statistics of valid cells."""
    if not training or input.dim() != 4:
        return func(input, running_mean, running_var, weight, bias, training, momentum, eps)
    return weighted_batch_norm(input, _hidden(kept, input), running_mean, running_var, weight, bias,
                               momentum, eps)


def max_pool2d(kept: KeptOut, func: Callable[..., Tensor], input: Tensor, kernel_size: Any,
               stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
               return_indices: bool = False) -> Tensor:
    """``F.max_pool2d`` over valid cells."""
    if ceil_mode or return_indices:
        raise _no_form('max_pool2d with ceil_mode or return_indices')
    kernel = pair(kernel_size)
    stride = kernel if stride is None else stride
    steps = stepped(kept.cells_of(input), kernel, stride, padding, dilation)
    # Not -inf: in compiled code the gradient of a window without a valid cell would be wrong, and
    # that of a later weight would be 0 * inf.
    seen = input.masked_fill(_hidden(kept, input)[:, None], torch.finfo(input.dtype).min)
    return kept.cleared(kept.remember(func(seen, kernel, stride, padding, dilation), steps))


def interpolate(kept: KeptOut, func: Callable[..., Tensor], input: Tensor, size: Any = None,
                scale_factor: Any = None, mode: str = 'nearest', *args: Any, **kwargs: Any
                ) -> Tensor:
    """``F.interpolate`` by the nearest cell to twice the cells, or one less: the nearest cell of i
    is then i // 2 for every image and any batch size. (For odd n = 2 k - 1, i k / n is less than
    i // 2 + 1 for all i below n.) To the same size nothing changes."""
    targets = None if size is None else kept.cells_at((pair(size)[0], pair(size)[1]))
    if mode != 'nearest' or targets is None or kept.cells_of(input) not in (
            targets, tuple(_joined(axis, -1, 2) for axis in targets)):
        raise _no_form(f"interpolate(mode={mode!r}) other than mode='nearest' to twice the cells")
    return kept.remember(func(input, size, scale_factor, mode, *args, **kwargs), targets)


def _hidden(kept: KeptOut, x: Tensor) -> Tensor:
    mask = kept.mask(x)
    assert mask is not None  # with image sizes in a tensor there is always a mask
    return mask


def _no_form(what: str) -> NotImplementedError:
    return NotImplementedError(f'{what} has no form for image sizes in a tensor, which compiled '
                               f'code needs; do not compile this model, or give numbers')


def refused(kept: KeptOut, func: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """Raise for functions that need image sizes as numbers."""
    raise _no_form(func.__name__)


#: For each function of torch, its form.
FORMS: dict[Any, Callable[..., Tensor]] = {
    F.batch_norm: batch_norm, F.max_pool2d: max_pool2d, F.interpolate: interpolate}
