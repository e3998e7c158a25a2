"""Token grids: which 2-D cell a token stands for, and checks that the numbers agree."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Grid(NamedTuple):
    """A grid of tokens, placed in the coordinates of a query grid.

    Cell (r, c) lies at row ``(r + 0.5) * stride_h - 0.5`` and column
    ``(c + 0.5) * stride_w - 0.5``, the centre of the query cells it pools, so a stride of 1 is the
    query grid itself. A plain ``(height, width)`` tuple is accepted wherever a grid is (see
    :func:`as_grid`).
    """

    height: int
    width: int
    stride_h: float = 1.0
    stride_w: float = 1.0

    @property
    def hw(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.height, self.width

    @property
    def num_cells(self) -> int:
        """Tokens on the grid, without prefix tokens."""
        return self.height * self.width


GridLike = Grid | tuple[int, int] | Sequence[int]


def as_grid(grid: GridLike, name: str = 'hw_shape') -> Grid:
    """Return ``grid`` as a :class:`Grid`.

    Raises:
        ValueError: if it is not two positive whole numbers (strides are left as they are).
    """
    if isinstance(grid, Grid):
        checked = grid
    else:
        if len(grid) != 2:
            raise ValueError(f'{name}={tuple(grid)!r} must be (height, width)')
        checked = Grid(_whole(grid[0]), _whole(grid[1]))
    if checked.height < 1 or checked.width < 1:
        raise ValueError(f'{name}=({checked.height}, {checked.width}) must be at least (1, 1)')
    return checked


def _whole(side: Any) -> int:
    """A side as a number; a symbol of a compiler or an exporter stays one."""
    number: int = side if isinstance(side, torch.SymInt) else int(side)  # type: ignore[assignment]
    return number


def whole_cells(side: int, cell: int) -> int:
    """Cells that a side fills, the last one perhaps in part. (A sum first: ONNX divides towards
    zero, so that the usual -(-side // cell) is another number there.)"""
    return (side + cell - 1) // cell


def key_grid(q_grid: GridLike, k_grid: GridLike | None) -> Grid:
    """Place the key grid in query units: ``None`` is the query grid, a plain ``(Hk, Wk)`` is taken
    to cover the same area (strides Hq / Hk and Wq / Wk), a :class:`Grid` is used as it is."""
    query = as_grid(q_grid, 'q_grid')
    if k_grid is None:
        return query
    if isinstance(k_grid, Grid):
        return as_grid(k_grid, 'k_grid')
    key = as_grid(k_grid, 'k_grid')
    return Grid(key.height, key.width, query.height / key.height, query.width / key.width)


def check_tokens(x: Tensor, hw_shape: GridLike, num_prefix_tokens: int = 0, name: str = 'x'
                 ) -> Grid:
    """Check that ``x`` (B, L, C) holds ``num_prefix_tokens`` plus one token for each cell.

    Raises:
        ValueError: naming L, the grid and the prefix tokens when they disagree. (The iRPE release
            silently takes floor(sqrt(L)) instead.)
    """
    grid = as_grid(hw_shape)
    if num_prefix_tokens < 0:
        raise ValueError(f'num_prefix_tokens={num_prefix_tokens} must be >= 0')
    if x.dim() != 3:
        raise ValueError(f'{name} has shape {tuple(x.shape)}; (B, L, C) is required')
    if x.shape[1] != num_prefix_tokens + grid.num_cells:
        raise ValueError(
            f'{name} has {x.shape[1]} tokens, but hw_shape=({grid.height}, {grid.width}) and '
            f'num_prefix_tokens={num_prefix_tokens} need {num_prefix_tokens} + {grid.height} * '
            f'{grid.width} = {num_prefix_tokens + grid.num_cells}')
    return grid


def cells_at_stride(hw_shape: tuple[int, int], stride: int, device: torch.device | None = None
                    ) -> Tensor:
    """Numbers of the cells in every ``stride``-th row and column, from the first, row by row."""
    rows = torch.arange(0, hw_shape[0], stride, device=device)
    cols = torch.arange(0, hw_shape[1], stride, device=device)
    return (rows[:, None] * hw_shape[1] + cols).flatten()


def extents_of(padding_mask: Tensor) -> Tensor:
    """Rows and columns of the valid top-left rectangle of each image, (B, 2), on the mask's device.

    Args:
        padding_mask: (B, H, W) bool, True = padding, as batching pads: to the right and below.

    Raises:
        ValueError: as :func:`valid_extents`, on a CPU. An accelerator would have to wait for it,
            and masks of this project's models are rectangles by construction.
    """
    if padding_mask.device.type == 'cpu' and not torch.compiler.is_compiling():
        valid_extents(padding_mask)
    valid = ~padding_mask
    return torch.stack((valid[:, :, 0].sum(1), valid[:, 0].sum(1)), 1)


def valid_extents(padding_mask: Tensor) -> list[tuple[int, int]]:
    """Rows and columns of the valid top-left rectangle of each image.

    Args:
        padding_mask: (B, H, W) bool, True = padding, as batching pads: to the right and below.

    Returns:
        One (rows, columns) pair an image.

    Raises:
        ValueError: if an image has no valid cell, or its valid cells are not a top-left rectangle.
    """
    return extents_of_several([padding_mask])[0]


def extents_of_several(padding_masks: Sequence[Tensor]) -> list[list[tuple[int, int]]]:
    """:func:`valid_extents` of masks of the same images on several grids; an accelerator is waited
    for once."""
    tables = []
    for mask in padding_masks:
        valid = ~mask
        rows, cols = valid[:, :, 0].sum(1), valid[:, 0].sum(1)
        down, across = (torch.arange(side, device=valid.device) for side in valid.shape[1:])
        corner = (down < rows[:, None])[:, :, None] & (across < cols[:, None])[:, None]
        wrong = (valid != corner).flatten(1).any(1) | (rows * cols == 0)
        tables.append(torch.stack((rows, cols, valid.flatten(1).sum(1), wrong.long()), 1))
    found: list[list[list[int]]] = torch.stack(tables).tolist()
    for index, (_, _, area, is_wrong) in enumerate(row for table in found for row in table):
        if is_wrong:
            raise ValueError(
                f'padding_mask of image {index % len(found[0])} has {area} valid cells that are '
                f'not one top-left rectangle; padding must lie to the right and below, with at '
                f'least one valid cell')
    return [[(row[0], row[1]) for row in table] for table in found]
