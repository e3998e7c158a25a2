"""The valid cells of a padded batch side by side, so that a norm of the batch sees no padding."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .second_order import AutogradContext

Extents = list[tuple[int, int]]


def over_valid_cells(norm: Callable[[Tensor], Tensor], x: Tensor, extents: Extents) -> Tensor:
    """A norm whose statistics are the batch's, of the valid cells only.

    On a CPU, two copies of a map take a tenth of the time of sums with weights 0 and 1. The host
    has the extents as numbers, so it need not wait for an accelerator.

    Args:
        norm: takes and gives (1, C, N), cells image by image.
        x: (B, C, H, W).
        extents: rows and columns of each image's valid cells.

    Returns:
        (B, C, H, W), zero on padding.
    """
    # Made contiguous, because torch 2.13's backward pass for a transposed view is wrong on a CPU.
    cells = _Picked.apply(x, extents)  # type: ignore[no-untyped-call]
    normed = norm(cells[None])[0]
    return _Spread.apply(  # type: ignore[no-untyped-call]
        normed, extents, *_shape_and_memory_format(x))


class _Picked(torch.autograd.Function):
    """Takes the valid cells (C, N) out of a map (B, C, H, W)."""

    @staticmethod
    def forward(x: Tensor, extents: Extents) -> Tensor:
        cells = x.new_empty(x.shape[1], sum(rows * cols for rows, cols in extents))
        views = _views_of_images(cells, extents)
        for image, filled, (rows, cols) in zip(x, views, extents, strict=True):
            filled.copy_(image[:, :rows, :cols])
        return cells

    @staticmethod
    def setup_context(ctx: AutogradContext, inputs: tuple[Tensor, Extents], output: Tensor) -> None:
        ctx.layout = (inputs[1], *_shape_and_memory_format(inputs[0]))

    @staticmethod
    def backward(ctx: AutogradContext, grad: Tensor) -> tuple[Tensor, None]:
        return _Spread.apply(grad, *ctx.layout), None  # type: ignore[no-untyped-call]


class _Spread(torch.autograd.Function):
    """Puts valid cells (C, N) into a map (B, C, H, W), with zeros around them."""

    @staticmethod
    def forward(cells: Tensor, extents: Extents, shape: torch.Size,
                memory_format: torch.memory_format) -> Tensor:
        x = torch.empty(shape, dtype=cells.dtype, device=cells.device, memory_format=memory_format)
        views = _views_of_images(cells, extents)
        for image, filled, (rows, cols) in zip(x, views, extents, strict=True):
            image[:, :rows, :cols] = filled
            image[:, rows:] = 0
            image[:, :rows, cols:] = 0
        return x

    @staticmethod
    def setup_context(ctx: AutogradContext, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.extents = inputs[1]

    @staticmethod
    def backward(ctx: AutogradContext, grad: Tensor) -> tuple[Tensor, None, None, None]:
        picked = _Picked.apply(grad, ctx.extents)  # type: ignore[no-untyped-call]
        return picked, None, None, None


def _views_of_images(cells: Tensor, extents: Extents) -> list[Tensor]:
    """Views of the cells (C, N) of each image as a map (C, rows, cols)."""
    parts = torch.split(cells, [rows * cols for rows, cols in extents], 1)
    return [part.view(-1, *extent) for part, extent in zip(parts, extents, strict=True)]


def _shape_and_memory_format(x: Tensor) -> tuple[torch.Size, torch.memory_format]:
    last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    return x.shape, torch.channels_last if last else torch.contiguous_format
