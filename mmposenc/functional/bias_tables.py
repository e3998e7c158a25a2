"""Tables by offset: which entry a pair of cells has, and how biases are resized to another grid."""
from __future__ import annotations

import torch
from torch import Tensor

from .grids import Grid, grid_offsets, stored
from .masking import are_known_equal
from .position_tables import resampling_weights
from .tracing import full_precision, is_compiling

#: How a table is resampled along each of its two axes.
RESIZINGS = ('bicubic', 'geometric', 'geometric-cubic')
#: After this many halvings, BEiT's search for a ratio between 1.01 and 1.5 is exact to 1e-6.
_HALVINGS = 19


def row_and_column_entries(query: Grid, key: Grid, limits: tuple[int, int], device: torch.device
                           ) -> tuple[Tensor, Tensor]:
    """The entry of each pair of rows (Hq, Hk) and of columns (Wq, Wk) in a table of the offsets
    -limit .. limit, which are key minus query.

    Real offsets of keys on a coarser grid go to the nearest whole number (halves to the even one,
    as ``torch.round``), longer ones than the limit to the last entry.
    """
    def make() -> tuple[Tensor, Tensor]:
        rows, row_index, cols, col_index = grid_offsets(query, key, device)
        rows, cols = ((-offsets).round().long().clamp(-limit, limit) + limit
                      for offsets, limit in zip((rows, cols), limits, strict=True))
        return rows[row_index], cols[col_index]

    return stored(('entries', query, key, limits), make, device)


def resize_bias_table(table: Tensor, grid: tuple[int, int], mode: str) -> Tensor:
    """Resize a table of the offsets of one grid to those of another.

    Args:
        table: (..., 2 H - 1, 2 W - 1), offsets -(H - 1) .. H - 1 of rows, and the same for columns.
        grid: (H', W') wanted.
        mode: 'bicubic', over the whole table with align_corners=False, as Swin's release and timm's
            ``resize_rel_pos_bias_table_simple``; 'geometric', as timm's
            ``resize_rel_pos_bias_table``, and 'geometric-cubic', as BEiT's release: the old
            offsets move apart by a factor that grows with the distance, so that near ones hardly
            change and the farthest one stays the farthest, and values between them are linear, or
            of a cubic spline.

    Returns:
        (..., 2 H' - 1, 2 W' - 1), of the table's dtype; the table itself for its own grid.

    As in these releases a table of which only one side changes is resampled along both, and
    'geometric' modes do change a side that keeps its length: ratios start at 1.01, not at 1.
    """
    return resize_table(table, (2 * grid[0] - 1, 2 * grid[1] - 1), mode)


def resize_table(table: Tensor, targets: tuple[int, int], mode: str) -> Tensor:
    """Resize a table with any two axes as :func:`resize_bias_table` does, by 'bicubic' or
    'bicubic_antialias'."""
    sizes = table.shape[-2], table.shape[-1]
    if are_known_equal(sizes, targets):
        return table
    # Multiply-accumulates are counted on the meta device; the papers' counts leave this resizing
    # out.
    if table.is_meta:
        return table.new_empty(*table.shape[:-2], *targets)
    dtype = torch.promote_types(table.dtype, torch.float32)
    rows, cols = (_axis_weights(size, target, mode, dtype, table.device)
                  for size, target in zip(sizes, targets, strict=True))
    # 'geometric' would change a table even for its own grid, which compiled code cannot skip by a
    # condition.
    if is_compiling() and mode.startswith('geometric'):
        same_size = torch.tensor(True, device=table.device)
        for size, target in zip(sizes, targets, strict=True):
            same_size = same_size & (torch.full((), target, device=table.device) == size)
        rows, cols = (
            torch.where(same_size, torch.eye(target, size, dtype=dtype, device=table.device),
                        weights)
            for size, target, weights in zip(sizes, targets, (rows, cols), strict=True))
    with full_precision(table):
        return (rows @ table.to(dtype) @ cols.t()).to(table.dtype)


def _axis_weights(size: int, target: int, mode: str, dtype: torch.dtype,
                  device: torch.device) -> Tensor:
    """The weights (target, size) that old offsets have in new ones, along one axis."""
    def make() -> Tensor:
        if mode.startswith('bicubic'):
            targets = torch.full((1,), target, dtype=torch.float64, device=device)
            return resampling_weights(size, targets, target, mode, dtype)[0]
        return _geometric_weights(size, target, mode == 'geometric-cubic', device).to(dtype)
    return stored(('bias_table', size, target, mode, dtype), make, device)


def _geometric_weights(size: int, target: int, cubic: bool, device: torch.device) -> Tensor:
    """The weights (target, size) of old offsets that lie at -d_n .. 0 .. d_n, with d_k = 1 + q +
    ... + q^(k-1). The ratio q is chosen so that d_n is the longest new offset, as far as 1.01 <= q
    <= 1.5 allows."""
    if size == 1:
        return torch.ones(target, 1, dtype=torch.float64, device=device)
    reach = size // 2
    # Tensors, because a compiled graph has the same code for all targets.
    wanted = torch.full((), target // 2, dtype=torch.float64, device=device)
    low, high = torch.full_like(wanted, 1.01), torch.full_like(wanted, 1.5)
    for _ in range(_HALVINGS):
        ratio = (low + high) / 2
        too_far = (ratio ** reach - 1) / (ratio - 1) > wanted
        low, high = torch.where(too_far, low, ratio), torch.where(too_far, ratio, high)
    # The formula of a geometric series: CUDA has no deterministic sum along a dimension.
    places = torch.arange(1, reach + 1, dtype=torch.float64, device=device)
    away = (ratio ** places - 1) / (ratio - 1)
    old = torch.cat((-away.flip(0), away.new_zeros(1), away))
    new = torch.arange(target, dtype=torch.float64, device=device) - target // 2
    right = torch.searchsorted(old, new).clamp(1, size - 1)
    step = old[right] - old[right - 1]
    # Clamped, so that values beyond both ends are constant.
    share = ((new - old[right - 1]) / step).clamp(0, 1)[:, None]
    unit = torch.eye(size, dtype=torch.float64, device=device)
    weights = (1 - share) * unit[right - 1] + share * unit[right]
    if cubic:
        bends = _second_derivatives(old)
        bent = (((1 - share) ** 3 - (1 - share)) * bends[right - 1]
                + (share ** 3 - share) * bends[right])
        weights = weights + step[:, None] ** 2 / 6 * bent
    return weights


def _second_derivatives(points: Tensor) -> Tensor:
    """The second derivatives of the cubic spline through values at ``points`` (n,), at these
    points, as weights (n, n) of the values."""
    count = len(points)
    unit = torch.eye(count, dtype=points.dtype, device=points.device)
    step = points.diff()
    before, after = step[:-1, None], step[1:, None]
    inner = before * unit[:-2] + 2 * (before + after) * unit[1:-1] + after * unit[2:]
    ends = after * unit[:-2] - (before + after) * unit[1:-1] + before * unit[2:]
    slopes = unit.diff(dim=0) / step[:, None]
    system = torch.cat((ends[:1], inner, ends[-1:]))
    bends = torch.cat((unit.new_zeros(1, count), 6 * slopes.diff(dim=0), unit.new_zeros(1, count)))
    return torch.linalg.solve(system, bends)
