"""Operators that CUDA sums up in a random order, rewritten so that the order is always the same."""
from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode


@contextmanager
def deterministic_forms() -> Iterator[None]:
    """Within it, ``randomness=dict(deterministic=True)`` trains mmdet's and mmseg's models too.

    With deterministic algorithms torch refuses, on an accelerator, resizing, sampling, adaptive
    means, cumulative sums and the cross entropy of maps. Here they are computed as products with
    small matrices, by ``gather``, in whole numbers, and over rows of cells: the same numbers but
    for the order of the sums. Tensors on a CPU, and runs without deterministic algorithms, are left
    alone. A backward pass runs outside of torch's modes, so whatever is computed again there must
    enter this context once more.
    """
    if not torch.are_deterministic_algorithms_enabled():
        yield
        return
    # Read when cuBLAS is first used; without it torch refuses every matrix product.
    os.environ.setdefault('CUBLAS_WORKSPACE_CONFIG', ':4096:8')
    with _Forms():
        yield


class _Forms(TorchFunctionMode):
    """A mode in which the functions of this file are called instead of torch's."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (),
                           kwargs: Mapping[str, object] | None = None) -> Any:
        form = FORMS.get(func)
        call = func if form is None or not args or args[0].device.type == 'cpu' else form
        return call(*args, **(kwargs or {}))


def interpolate(input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = 'nearest',
                **options: Any) -> Tensor:
    """Replaces ``F.interpolate`` where it is linear or cubic on two axes."""
    if mode not in ('bilinear', 'bicubic'):
        return F.interpolate(input, size, scale_factor, mode, **options)

    def resize(x: Tensor, axis: int) -> Tensor:
        def along(value: Any, other: float) -> Any:
            if value is None:
                return None
            pair = [value, value] if isinstance(value, (int, float)) else list(value)
            pair[1 - axis] = other
            return pair
        return F.interpolate(x, along(size, 2), along(scale_factor, 1.0), mode, **options)
    return _by_axis(input, resize)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Replaces ``F.adaptive_avg_pool2d``: average pooling to a size."""
    pair = [output_size] * 2 if isinstance(output_size, int) else list(output_size)

    def pool(x: Tensor, axis: int) -> Tensor:
        side = x.shape[-2 + axis] if pair[axis] is None else pair[axis]
        return F.adaptive_avg_pool2d(x, (side, 2) if axis == 0 else (2, side))
    return _by_axis(input, pool)


def _by_axis(x: Tensor, function: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Apply a linear function of maps that acts on rows and on columns separately, by two matrix
    products.

    Args:
        x: (..., H, W).
        function: of maps (n, 1, H, 2) and axis 0, and of maps (n, 1, 2, W) and axis 1. (torch 2.13
            resizes maps one cell wide with ``antialias`` wrongly on a CPU.)
    """
    dtype = torch.promote_types(x.dtype, torch.float32)
    with torch.no_grad():
        eyes = [torch.eye(side, dtype=dtype, device=x.device) for side in x.shape[-2:]]
        rows = function(torch.stack([eyes[0][:, None]] * 2, 3), 0)[:, 0, :, 0]  # (H, H')
        cols = function(torch.stack([eyes[1][:, None]] * 2, 2), 1)[:, 0, 0]  # (W, W')
    with torch.autocast(x.device.type, enabled=False):
        return (rows.mT @ (x.to(dtype) @ cols)).to(x.dtype)


def grid_sample(input: Tensor, grid: Tensor, mode: str = 'bilinear', padding_mode: str = 'zeros',
                align_corners: bool | None = None) -> Tensor:
    """Replaces ``F.grid_sample`` of maps where it is bilinear with zeros around."""
    if input.dim() != 4 or mode != 'bilinear' or padding_mode != 'zeros':
        return F.grid_sample(input, grid, mode, padding_mode, align_corners)
    dtype = torch.promote_types(input.dtype, grid.dtype)
    batch, channels, height, width = input.shape
    cells = input.to(dtype).flatten(2)  # (B, C, H * W)
    at_x, at_y = (
        ((point + 1) * (side - 1) if align_corners else (point + 1) * side - 1) / 2
        for point, side in zip(grid.to(dtype).flatten(1, 2).unbind(-1), (width, height),
                               strict=True))
    left, top = at_x.detach().floor(), at_y.detach().floor()
    out = cells.new_zeros(batch, channels, at_x.shape[1])
    for x, by_col in ((left, left + 1 - at_x), (left + 1, at_x - left)):
        for y, by_row in ((top, top + 1 - at_y), (top + 1, at_y - top)):
            inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
            index = (y.clamp(0, height - 1) * width + x.clamp(0, width - 1)).long()
            corner = cells.gather(2, index[:, None].expand(-1, channels, -1))
            out = out + corner * (by_col * by_row * inside)[:, None]
    return out.view(batch, channels, *grid.shape[1:3])


def loss_of_cells(loss: Callable[..., Tensor], input: Tensor, target: Tensor, *args: Any,
                  **options: Any) -> Tensor:
    """Replaces ``F.cross_entropy`` and ``F.nll_loss``; losses of maps (N, C, ...) are computed cell
    by cell."""
    if input.dim() < 3 or target.dim() == input.dim():
        return loss(input, target, *args, **options)
    rows = input.movedim(1, -1).reshape(-1, input.shape[1])
    out = loss(rows, target.flatten(), *args, **options)
    return out.view_as(target) if out.dim() else out


def cumsum(input: Tensor, dim: int, *, dtype: torch.dtype | None = None, out: None = None
           ) -> Tensor:
    """Replaces ``torch.cumsum``: whole numbers are summed as they are, others by a product with a
    triangular matrix."""
    if not (input if dtype is None else torch.empty((), dtype=dtype)).is_floating_point():
        return torch.cumsum(input, dim, dtype=dtype)
    dtype = input.dtype if dtype is None else dtype
    if not input.dtype.is_floating_point:
        return torch.cumsum(input, dim).to(dtype)
    ones = torch.ones(input.shape[dim], input.shape[dim], dtype=dtype, device=input.device)
    return (input.to(dtype).movedim(dim, -1) @ ones.triu()).movedim(-1, dim)


FORMS: dict[Any, Callable[..., Tensor]] = {
    F.interpolate: interpolate, F.adaptive_avg_pool2d: adaptive_avg_pool2d,
    F.grid_sample: grid_sample,
    **{loss: partial(loss_of_cells, loss) for loss in (F.cross_entropy, F.nll_loss)},
    torch.cumsum: cumsum, Tensor.cumsum: cumsum}
