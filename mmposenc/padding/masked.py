"""Forms of layers for sizes of images that are a tensor: code that is compiled from them holds for
all sizes and paddings, since it looks at no number of them."""
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

#: How many cells of a map are an image's, along an axis: n is made (n + offset) // step + 1 by one
#: pair (offset, step) after the other.
Axis = tuple[tuple[int, int], ...]
#: The same of rows and of columns; from the batch itself to a map, none.
Steps = tuple[Axis, Axis]
BATCH: Steps = ((), ())
Side = TypeVar('Side', int, Tensor)


def stepped(steps: Steps, kernel: Sequence[int], stride: Any, padding: Any, dilation: Any) -> Steps:
    """Steps to what a convolution or pooling gives."""
    return tuple(_joined(axis, 2 * pad - dilate * (taps - 1) - 1, step)  # type: ignore[return-value]
                 for axis, taps, step, pad, dilate in zip(
                     steps, kernel, pair(stride), pair(padding), pair(dilation), strict=True))


def _joined(axis: Axis, offset: int, step: int) -> Axis:
    """With one more pair; roundings up, whose offset is -1, become one: maps that come by two ways
    with as many cells have the same steps."""
    last = axis[-1] if axis else (-1, 1)
    if offset == last[0] == -1:
        step *= last[1]
        return (*axis[:-1], (-1, step)) if step > 1 else ()
    return (*axis, (offset, step))


def shrunk(side: int) -> Steps:
    """Steps from a batch to a map whose cells are ``side`` pixels wide."""
    return stepped(BATCH, (1, 1), side, 0, 1)


def same(known: Any, steps: Any, hw_shape: tuple[int, int]) -> bool:
    """Whether maps of a size have the same cells: where there is one, it is every image's."""
    return isinstance(known, tuple) and all(
        one == other or side == 1
        for one, other, side in zip(known, steps, hw_shape, strict=True))


def reached(side: Side, axis: Axis) -> Side:
    """Cells of pixels; a number, or those of all images."""
    for offset, step in axis:
        side = (side + offset) // step + 1
    return side


def all_reached(images: list[tuple[int, int]], steps: Steps) -> list[tuple[int, int]]:
    """Cells (rows, columns) of images of pixels (rows, columns)."""
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
    """``F.max_pool2d`` of each image's cells."""
    if ceil_mode or return_indices:
        raise _no_form('max_pool2d with ceil_mode or return_indices')
    kernel = pair(kernel_size)
    stride = kernel if stride is None else stride
    steps = stepped(kept.cells_of(input), kernel, stride, padding, dilation)
    # Not -inf: compiled, the gradient of a window without a largest cell goes astray, and that of
    # a weight behind it would be 0 * inf.
    seen = input.masked_fill(_hidden(kept, input)[:, None], torch.finfo(input.dtype).min)
    return kept.cleared(kept.remember(func(seen, kernel, stride, padding, dilation), steps))


def interpolate(kept: KeptOut, func: Callable[..., Tensor], input: Tensor, size: Any = None,
                scale_factor: Any = None, mode: str = 'nearest', *args: Any, **kwargs: Any
                ) -> Tensor:
    """``F.interpolate`` of a map to one that has twice its cells, to rounding: the nearest cell of
    i is then i // 2 in every image, whatever the batch's size. (With odd n = 2 k - 1, i k / n is
    less than i // 2 + 1 for all i below n.) To its own size nothing changes."""
    targets = None if size is None else kept.cells_at((pair(size)[0], pair(size)[1]))
    if mode != 'nearest' or targets is None or kept.cells_of(input) not in (
            targets, tuple(_joined(axis, -1, 2) for axis in targets)):
        raise _no_form(f'interpolate(mode={mode!r}) but from half as many cells to the nearest')
    return kept.remember(func(input, size, scale_factor, mode, *args, **kwargs), targets)


def _hidden(kept: KeptOut, x: Tensor) -> Tensor:
    mask = kept.mask(x)
    assert mask is not None  # of sizes that are a tensor there always is one
    return mask


def _no_form(what: str) -> NotImplementedError:
    return NotImplementedError(f'{what} has no form for sizes of images that are a tensor, as '
                               f'compiled code has them; leave compiling out, or give numbers')


def refused(kept: KeptOut, func: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """Of functions that work image by image where sizes are numbers."""
    raise _no_form(func.__name__)


#: By function of torch, its form.
FORMS: dict[Any, Callable[..., Tensor]] = {
    F.batch_norm: batch_norm, F.max_pool2d: max_pool2d, F.interpolate: interpolate}
