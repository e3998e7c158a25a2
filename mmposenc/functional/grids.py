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
    :func:`as_grid`). A video has ``frames``, one grid after the other, which lie in time as rows do
    in space; a sequence is a grid of one row.
    """

    height: int
    width: int
    stride_h: float = 1.0
    stride_w: float = 1.0
    frames: int = 1
    stride_t: float = 1.0

    @property
    def hw(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.height, self.width

    @property
    def num_cells(self) -> int:
        """Tokens on the grid, without prefix tokens."""
        return self.frames * self.height * self.width

    @property
    def shape(self) -> tuple[int, ...]:
        """(height, width), with frames (frames, height, width): for messages."""
        return self.hw if self.frames == 1 else (self.frames, *self.hw)


GridLike = Grid | tuple[int, int] | Sequence[int]


def as_grid(grid: GridLike, name: str = 'hw_shape', *, any_axes: bool = False) -> Grid:
    """Return ``grid`` as a :class:`Grid`.

    Args:
        grid: (height, width).
        name: of the caller's argument, for messages.
        any_axes: take (length,) and (frames, height, width) too.

    Raises:
        ValueError: if it is not so many positive whole numbers (strides are left as they are).
    """
    if not isinstance(grid, Grid) and len(grid) != 2 and not (any_axes and len(grid) in (1, 3)):
        wanted = '(length,), (height, width) or (frames, height, width)' if any_axes else (
            '(height, width)')
        raise ValueError(f'{name}={tuple(grid)!r} must be {wanted}')
    if isinstance(grid, Grid):
        checked = grid
    else:
        frames, height, width = (1,) * (3 - len(grid)) + tuple(_whole(side) for side in grid)
        checked = Grid(height, width, frames=frames)
    if any(side < 1 for side in checked.shape):
        raise ValueError(f'{name}={checked.shape} must be at least {(1,) * len(checked.shape)}')
    if checked.frames > 1 and not any_axes:
        raise ValueError(f'{name}={checked.shape} has frames; (height, width) is required')
    return checked


def _whole(side: Any) -> Any:
    """A side as a number; a symbol of a compiler or an exporter stays one."""
    return side if isinstance(side, int | torch.SymInt) else int(side)


def whole_cells(side: int, cell: int) -> int:
    """Cells that a side fills, the last one perhaps in part. (A sum first: ONNX divides towards
    zero, so that the usual -(-side // cell) is another number there.)"""
    return (side + cell - 1) // cell


def key_grid(q_grid: GridLike, k_grid: GridLike | None) -> Grid:
    """Place the key grid in query units: ``None`` is the query grid, a plain ``(Hk, Wk)`` is taken
    to cover the same area (strides Hq / Hk and Wq / Wk; of videos the same time too), a
    :class:`Grid` is used as it is."""
    query = as_grid(q_grid, 'q_grid', any_axes=True)
    if k_grid is None:
        return query
    key = as_grid(k_grid, 'k_grid', any_axes=True)
    if isinstance(k_grid, Grid):
        return key
    return Grid(key.height, key.width, query.height / key.height, query.width / key.width,
                key.frames, query.frames / key.frames)


def check_tokens(x: Tensor, hw_shape: GridLike, num_prefix_tokens: int = 0, name: str = 'x', *,
                 any_axes: bool = False) -> Grid:
    """Check that ``x`` (B, L, C) holds ``num_prefix_tokens`` plus one token for each cell.

    Raises:
        ValueError: naming L, the grid and the prefix tokens when they disagree. (The iRPE release
            silently takes floor(sqrt(L)) instead.)
    """
    grid = as_grid(hw_shape, any_axes=any_axes)
    if num_prefix_tokens < 0:
        raise ValueError(f'num_prefix_tokens={num_prefix_tokens} must be >= 0')
    if x.dim() != 3:
        raise ValueError(f'{name} has shape {tuple(x.shape)}; (B, L, C) is required')
    if x.shape[1] != num_prefix_tokens + grid.num_cells:
        raise ValueError(
            f'{name} has {x.shape[1]} tokens, but hw_shape={grid.shape} and '
            f'num_prefix_tokens={num_prefix_tokens} need {num_prefix_tokens} + '
            f'{" * ".join(map(str, grid.shape))} = {num_prefix_tokens + grid.num_cells}')
    return grid


def check_sides(x: Tensor, sides: Sequence[int], dims: int, num_prefix_tokens: int = 0
                ) -> tuple[int, ...]:
    """:func:`check_tokens` for a grid of exactly ``dims`` axes; returns its sides.

    Raises:
        ValueError: as there; for another number of axes.
    """
    given = as_grid(sides, any_axes=True).shape if isinstance(sides, Grid) else tuple(sides)
    if len(given) != dims:
        names = ('length',), ('height', 'width'), ('frames', 'height', 'width')
        wanted = f'({names[dims - 1][0]},)' if dims == 1 else f'({", ".join(names[dims - 1])})'
        raise ValueError(f'hw_shape={given} must be {wanted}')
    check_tokens(x, given, num_prefix_tokens, any_axes=True)
    return tuple(_whole(side) for side in given)


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
