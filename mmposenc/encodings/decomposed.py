"""Decomposed relative positions of MViTv2, ViTDet and SAM."""
from __future__ import annotations

import torch
from torch import Tensor

from ..attention.terms import Term
from ..attention.vector_terms import AxisHalves, pick_entries
from ..functional.grids import Grid, GridLike, as_grid
from ..functional.position_tables import resize_axis_table
from .base import RelativeEncoding


class DecomposedRPE(RelativeEncoding):
    """logit + q_i . (row_table[r_i - r_j] + col_table[c_i - c_j]), with a vector for the row offset
    and one for the column offset (MViTv2, Li et al., CVPR 2022, Eq. 4; ViTDet, ECCV 2022; SAM, ICCV
    2023).

    Args:
        head_dims: channels of a head.
        num_heads: attention heads.
        grid_shape: (H, W) of the query grid of the tables, which are resized linearly to any other
            grid. Window attention sets it to the window, and backbones to the grid at ``img_size``.
        shared_heads: one pair of tables for all heads (as in the releases), or one for each head.
        num_prefix_tokens: tokens in front of the grid; pairs with one of them get no term.

    Parameters: ``row_table`` (2 * height - 1, head_dims) and ``col_table`` (2 * width - 1,
    head_dims), by query minus key, as ``rel_pos_h`` and ``rel_pos_w`` of the releases; with
    ``shared_heads=False`` (num_heads, ...). They start at zero, as in ViTDet.

    Raises:
        ValueError: for bad sizes.

    Differs from the paper as its releases do: the query is multiplied with the tables before it is
    scaled by head_dims ** -0.5. Keys on a coarser grid lie at the last of the query cells that they
    pool, not at the centre, and offsets are rounded down, also as in the releases.
    """

    variants = {'decomposed': ('decomposed (ViTDet)', {})}

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
        """Start with tables of zeros, which add nothing."""
        self.start_at_zero()

    def terms(self, q_grid: Grid, k_grid: Grid, tokens: Tensor | None = None) -> list[Term]:
        """One :class:`AxisHalves`; see :class:`RelativeEncoding`."""
        rows = _vectors_of_axis_pairs(self.row_table, q_grid.height, k_grid.height, k_grid.stride_h)
        cols = _vectors_of_axis_pairs(self.col_table, q_grid.width, k_grid.width, k_grid.stride_w)
        # Terms get scaled queries, but the releases multiply the tables with unscaled ones.
        scale = float(self.head_dims ** 0.5)
        return [AxisHalves(rows * scale, cols * scale, self.num_prefix_tokens)]


def _vectors_of_axis_pairs(table: Tensor, num_queries: int, num_keys: int, stride: float) -> Tensor:
    """The vectors ([heads], queries, keys, d) of one axis, whose keys are ``stride`` query cells
    apart. Offsets count cells of the finer of the two grids.
    """
    table = resize_axis_table(table, 2 * max(num_queries, num_keys) - 1)
    coarser, finer = max(stride, 1.0), max(1.0 / stride, 1.0)
    rows = torch.arange(num_queries, dtype=torch.float32, device=table.device) * finer
    cols = torch.arange(num_keys, dtype=torch.float32, device=table.device) * coarser
    index = rows[:, None] - cols + (num_keys - 1) * coarser
    return pick_entries(table, index.long().clamp(0, table.shape[-2] - 1))
