"""Batches of padded grids as one row of valid tokens."""
from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .masking import valid_extents


class Packing(NamedTuple):
    """Where the valid tokens of a padded batch (B, L) are.

    Attributes:
        numbers: (N,) long, places in the flattened batch, image by image.
        lengths: how many each image has; images without one are left out.
        grids: (rows, columns) of each image's valid cells, or None where they were not asked for
            or are no rectangle at the first cell.
        shape: (B, L).
    """

    numbers: Tensor
    lengths: list[int]
    grids: list[tuple[int, int]] | None
    shape: tuple[int, int]

    def pack(self, x: Tensor) -> Tensor:
        """Tokens (B, L, C) -> (1, N, C)."""
        return _Pack.apply(x.flatten(0, 1), self.numbers)[None]  # type: ignore[no-any-return, no-untyped-call]

    def unpack(self, x: Tensor) -> Tensor:
        """Tokens (1, N, C) -> (B, L, C), zeros at the padding."""
        out: Tensor = _Unpack.apply(  # type: ignore[no-untyped-call]
            x[0], self.numbers, self.shape[0] * self.shape[1])
        return out.view(*self.shape, -1)


def packing_of(padding_mask: Tensor, hw_shape: tuple[int, int] | None = None) -> Packing:
    """The valid tokens of a batch.

    Args:
        padding_mask: (B, L) bool, True = padding.
        hw_shape: (H, W) with H * W = L; None where the images' own grids are not asked for.
    """
    valid = ~padding_mask
    lengths = [count for count in valid.sum(1).tolist() if count]
    grids = None
    if hw_shape is not None:
        with suppress(ValueError):  # valid cells that are no rectangle
            grids = valid_extents(padding_mask[valid.any(1)].view(-1, *hw_shape))
    return Packing(valid.flatten().nonzero()[:, 0], lengths, grids,
                   (padding_mask.shape[0], padding_mask.shape[1]))


class _Pack(torch.autograd.Function):
    """Rows by number. Every number occurs once, so that gradients are copied, not added."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.rows = x.shape[0]
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        index, = ctx.saved_tensors
        return _Unpack.apply(grad, index, ctx.rows), None  # type: ignore[no-untyped-call]


class _Unpack(torch.autograd.Function):
    """The rows back among zeros."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, rows: int) -> Tensor:
        ctx.save_for_backward(index)
        return x.new_zeros(rows, *x.shape[1:]).index_copy_(0, index, x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        index, = ctx.saved_tensors
        return _Pack.apply(grad, index), None, None  # type: ignore[no-untyped-call]
