"""Decomposed relative positions of MViTv2, ViTDet and SAM."""
from __future__ import annotations

import torch
from torch import Tensor

from ..attention.terms import AxisHalves, Term
from ..functional.grids import Grid, GridLike, as_grid, pick_entries
from ..functional.position_tables import resize_axis_table
from .base import RelativeEncoding


class DecomposedRPE(RelativeEncoding):
    """q_i . (row_table[r_i - r_j] + col_table[c_i - c_j]): a vector of the row offset and one of
    the column offset meet the query (MViTv2, Li et al., CVPR 2022, Eq. 4; ViTDet, ECCV 2022; SAM,
    ICCV 2023).

    Args:
        head_dims: channels of a head.
        num_heads: attention heads.
        grid_shape: (H, W) of the queries that the tables are made for; on another grid they are
            resized, linearly, to its 2 * height - 1 and 2 * width - 1 offsets. Attention in windows
            fills the window in, and backbones their grid at ``img_size``.
        shared_heads: one pair of tables for all heads (as in the releases), or a pair a head.
        num_prefix_tokens: tokens in front of the grid; pairs with one of them get no term.

    Parameters: ``row_table`` (2 * height - 1, head_dims) and ``col_table`` (2 * width - 1,
    head_dims), by query minus key, as ``rel_pos_h`` and ``rel_pos_w`` of the releases; with
    ``shared_heads=False`` (num_heads, ...). They start at zero, as ViTDet's.

    Raises:
        ValueError: for bad sizes.

    Differs from the paper as its releases do: queries are not scaled by head_dims ** -0.5 here,
    only in their products with keys. Keys on a coarser grid lie where the releases put them, at the
    last of the query cells that they pool and not at the centre; offsets are rounded down.
    """

    def __init__(self, head_dims: int, num_heads: int, *, grid_shape: GridLike,
                 shared_heads: bool = True, num_prefix_tokens: int = 0) -> None:
        super().__init__()
        self._set_sizes(head_dims, num_heads, num_prefix_tokens)
        self.grid_shape = as_grid(grid_shape, 'grid_shape').hw
        self.row_table, self.col_table = (
            self._empty_table(2 * side - 1, head_dims, shared_heads=shared_heads)
            for side in self.grid_shape)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Zeros."""
        self.start_at_zero()

    def terms(self, q_grid: Grid, k_grid: Grid) -> list[Term]:
        """One :class:`AxisHalves`; see :class:`RelativeEncoding`."""
        rows = _vectors(self.row_table, q_grid.height, k_grid.height, k_grid.stride_h)
        cols = _vectors(self.col_table, q_grid.width, k_grid.width, k_grid.stride_w)
        # Terms meet scaled queries; the releases' meet queries as they are.
        scale = float(self.head_dims ** 0.5)
        return [AxisHalves(rows * scale, cols * scale, self.num_prefix_tokens)]


def _vectors(table: Tensor, num_queries: int, num_keys: int, stride: float) -> Tensor:
    """Vectors ([heads], queries, keys, d) of an axis, whose keys are ``stride`` query cells apart.

    Offsets count cells of the finer of the two grids.
    """
    table = resize_axis_table(table, 2 * max(num_queries, num_keys) - 1)
    coarser, finer = max(stride, 1.0), max(1.0 / stride, 1.0)
    rows = torch.arange(num_queries, dtype=torch.float32, device=table.device) * finer
    cols = torch.arange(num_keys, dtype=torch.float32, device=table.device) * coarser
    index = rows[:, None] - cols + (num_keys - 1) * coarser
    return pick_entries(table, index.long().clamp(0, table.shape[-2] - 1))
