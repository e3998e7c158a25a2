"""Token grids: which cell a token stands for, checks that the numbers agree, offsets between cells,
one axis at a time, and a memory for what depends on grids alone."""
from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from .tracing import is_compiling


class Grid(NamedTuple):
    """A grid of tokens in the coordinates of a query grid.

    Cell (r, c) lies at row ``(r + 0.5) * stride_h - 0.5`` and column
    ``(c + 0.5) * stride_w - 0.5``, the centre of the query cells it pools, so a stride of 1 is the
    query grid itself. Frame t of a video lies at ``(t + 0.5) * stride_t - 0.5``, too. A plain
    ``(height, width)`` tuple is accepted wherever a grid is (see
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
        """The numbers of rows and columns."""
        return self.height, self.width

    @property
    def num_cells(self) -> int:
        """Tokens on the grid, without prefix tokens."""
        return self.frames * self.height * self.width

    @property
    def shape(self) -> tuple[int, ...]:
        """The sides as (height, width), with frames as (frames, height, width), for messages."""
        return self.hw if self.frames == 1 else (self.frames, *self.hw)


GridLike = Grid | tuple[int, int] | Sequence[int]


def as_grid(grid: GridLike, name: str = 'hw_shape', *, any_axes: bool = False) -> Grid:
    """Return ``grid`` as a :class:`Grid`.

    Args:
        grid: (height, width).
        name: the name of the caller's argument, for messages.
        any_axes: take (length,) and (frames, height, width) too.

    Raises:
        ValueError: if it is not so many positive whole numbers (strides are left as they are).
    """
    axes = 0 if isinstance(grid, int) else len(grid)
    if isinstance(grid, Grid):
        checked = grid
    elif axes == 2 or (any_axes and axes in (1, 3)):
        # A symbol of a compiler or an exporter must stay a symbol.
        sides = tuple(x if isinstance(x, int | torch.SymInt) else int(x) for x in grid)
        frames, height, width = (1,) * (3 - len(sides)) + sides
        checked = Grid(height, width, frames=frames)
    else:
        wanted = '(length,), (height, width) or (frames, height, width)' if any_axes else (
            '(height, width)')
        raise ValueError(f'{name}={tuple(grid) if axes else grid!r} must be {wanted}')
    if any(side < 1 for side in checked.shape):
        raise ValueError(f'{name}={checked.shape} must be at least {(1,) * len(checked.shape)}')
    if checked.frames > 1 and not any_axes:
        raise ValueError(f'{name}={checked.shape} has frames; (height, width) is required')
    return checked


def pair(value: int | Sequence[int]) -> tuple[int, int]:
    """A number as a pair of equal numbers, for rows and columns; a pair as it is."""
    return (value, value) if isinstance(value, int) else (
        (value[0], value[0]) if len(value) == 1 else (value[0], value[1]))


def are_strides_whole(*grids: Grid) -> bool:
    """Whether cells lie a whole number of query cells apart, so that offsets repeat."""
    return all(stride == int(stride) for grid in grids for stride in grid[2:4])


def whole_cells(side: int, cell: int) -> int:
    """The number of cells that a side fills, the last one perhaps only in part. (A sum comes first:
    ONNX divides towards zero, where the usual -(-side // cell) is another number.)"""
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
    """Check that ``x`` (B, L, C) holds ``num_prefix_tokens`` plus one token for each cell of
    ``hw_shape``: (H, W), with ``any_axes`` also a sequence or a video. Errors call x ``name``.

    Raises:
        ValueError: naming L, the grid and the prefix tokens when they disagree. (The iRPE release
            silently takes floor(sqrt(L)) instead.)
    """
    grid = as_grid(hw_shape, any_axes=any_axes)
    if num_prefix_tokens < 0:
        raise ValueError(f'num_prefix_tokens={num_prefix_tokens} must be >= 0')
    if x.dim() != 3:
        raise ValueError(f'{name} has shape {tuple(x.shape)}; (B, L, C) is required')
    check_number(x.shape[1], grid, num_prefix_tokens, name)
    return grid


def check_number(tokens: int, grid: Grid, prefix: int, name: str, grid_name: str = 'hw_shape',
                 owner: object = None) -> None:
    """Raise ValueError if ``name`` has not one token for each cell of the grid and ``prefix`` more,
    which are those of ``owner``, if it is given."""
    if tokens != prefix + grid.num_cells:
        whose = '' if owner is None else f' of {type(owner).__name__}'
        raise ValueError(
            f'{name} has {tokens} tokens, but {grid_name}={grid.shape} and num_prefix_tokens='
            f'{prefix}{whose} need {prefix} + {" * ".join(map(str, grid.shape))} = '
            f'{prefix + grid.num_cells}')


def axis_offsets(num_queries: int, num_keys: int, query_stride: float = 1.0,
                 key_stride: float = 1.0, device: torch.device | str | None = None
                 ) -> tuple[Tensor, Tensor]:
    """Offsets query minus key along one axis: the distinct values, and where each pair finds its.

    Cell i lies at (i + 0.5) * stride - 0.5. With whole strides the offsets repeat, and there are
    only about as many distinct ones as cells; with others there may be one for every pair.

    Args:
        num_queries, num_keys: cells along the axis.
        query_stride, key_stride: their spacing, in cells of the query grid.
        device: where to put the result.

    Returns:
        values (D,) float32 offsets, ascending, and index
        (num_queries, num_keys) long, with values[index[i, j]] = position of i - position of j.
    """
    rows = torch.arange(num_queries, device=device)
    cols = torch.arange(num_keys, device=device)
    device = rows.device
    if query_stride == int(query_stride) and key_stride == int(key_stride):
        sq, sk = int(query_stride), int(key_stride)
        lowest = sk * (num_keys - 1)
        values = torch.arange(-lowest, sq * (num_queries - 1) + 1, device=device).float()
        return values + (sq - sk) / 2, rows[:, None] * sq - cols * sk + lowest
    if is_compiling():  # Compiled code must be right for any number of cells.
        offsets = _centres(rows, query_stride)[:, None] - _centres(cols, key_stride)
        return offsets.flatten(), rows[:, None] * num_keys + cols
    # Computed on the CPU: with an accelerator, the host would have to wait for the number of
    # distinct offsets.
    at_rows, at_cols = (_centres(torch.arange(number, device='cpu'), stride) for number, stride in (
        (num_queries, query_stride), (num_keys, key_stride)))
    values, index = torch.unique(at_rows[:, None] - at_cols, return_inverse=True)
    return values.to(device), index.to(device)


def _centres(cells: Tensor, stride: float) -> Tensor:
    """The positions of cells, in float32 whatever torch's default is: bfloat16 rounds from 256 on.
    """
    return (cells.float() + 0.5) * stride


def grid_offsets(query: Grid, key: Grid, device: torch.device | str | None = None
                 ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Call :func:`axis_offsets` for the rows and for the columns: offsets (Dr,), indices (Hq, Hk),
    offsets (Dc,), indices (Wq, Wk). They are stored between calls."""
    return stored(('offsets', query, key), lambda: (
        *axis_offsets(query.height, key.height, query.stride_h, key.stride_h, device),
        *axis_offsets(query.width, key.width, query.stride_w, key.stride_w, device)), device)


def expand_offsets(table: Tensor, row_index: Tensor, col_index: Tensor) -> Tensor:
    """The entry of every pair of cells out of a table by offset, an axis at a time.

    Args:
        table: (heads, Dr, Dc), by pairs of distinct offsets.
        row_index: (Hq, Hk), col_index: (Wq, Wk), from :func:`axis_offsets`.

    Returns:
        (heads, Hq * Wq, Hk * Wk). No index of that size is built: columns are picked first, while
        rows are few, then whole runs of Wk are copied.
    """
    (hq, hk), (wq, wk), heads = row_index.shape, col_index.shape, table.shape[0]
    by_col = table.index_select(2, col_index.flatten()).view(heads, -1, wq, wk)
    runs = by_col.transpose(1, 2).reshape(heads, -1, wk)  # (heads, Wq * rows, Wk)
    starts = torch.arange(wq, device=table.device)[:, None] * table.shape[1]
    which = row_index[:, None, :] + starts
    return runs.index_select(1, which.flatten()).view(heads, hq * wq, hk * wk)


def sequence_places(query: Grid, key: Grid, num_prefix_tokens: int,
                    device: torch.device | str | None = None) -> Tensor:
    """The places (P + Lk,) of keys in the sequence of queries: a key has the place of the query
    cell nearest to its centre, and prefix tokens come first."""
    def nearest(queries: int, keys: int, stride: float) -> Tensor:
        centres = _centres(torch.arange(keys, device=device), stride) - 0.5
        return centres.round().long().clamp(0, queries - 1)

    row = nearest(query.height, key.height, key.stride_h / query.stride_h)
    col = nearest(query.width, key.width, key.stride_w / query.stride_w)
    cells = (row[:, None] * query.width + col).flatten() + num_prefix_tokens
    return torch.cat((torch.arange(num_prefix_tokens, device=device), cells))


_T = TypeVar('_T')


class GridCache:
    """Stores values by key, and drops those that were not used for longest when it is full.

    Args:
        max_bytes: the most that all stored tensors together may have; larger ones are computed each
            time.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._values: OrderedDict[Hashable, tuple[object, int]] = OrderedDict()
        self._lock = Lock()
        self.bytes = 0

    def get_or_make(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return the value of ``key``; if it is not stored, it is computed first.

        Args:
            key: everything the value depends on: grids, options and dtype.
            make: computes it, a tensor or a tuple of them among others; without a gradient.
        """
        if not may_store():
            return make()
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key][0]  # type: ignore[return-value]
        # Tensors that were created in inference mode could not be used in a later training.
        with torch.inference_mode(False), torch.no_grad():
            value = make()
        parts = value if isinstance(value, (tuple, list)) else (value,)
        # At least that of a key.
        size = sum(each.untyped_storage().nbytes() for each in parts
                   if isinstance(each, Tensor)) or 64
        if size <= self.max_bytes:
            self._keep(key, value, size)
        return value

    def _keep(self, key: Hashable, value: object, size: int) -> None:
        with self._lock:
            if key in self._values:  # Another thread was faster.
                return
            self._values[key] = value, size
            self.bytes += size
            while self.bytes > self.max_bytes:
                self.bytes -= self._values.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Forget all tensors that are stored."""
        with self._lock:
            self._values.clear()
            self.bytes = 0


#: Bytes that the cache of a device holds: of a CPU less than 1 MiB; of an accelerator enough for an
#: index of all pairs of 4,200 tokens (not measured with other numbers).
CPU_BYTES, ACCELERATOR_BYTES = 960 * 1024, 256 * 1024 * 1024


@functools.cache
def cache_of(device: torch.device) -> GridCache:
    """The cache of this process for tensors of a device."""
    return GridCache(CPU_BYTES if device.type == 'cpu' else ACCELERATOR_BYTES)


def stored(key: Hashable, make: Callable[[], _T], device: torch.device | str | None) -> _T:
    """What ``make`` computes on a device from grids and options alone, which are the key. It is
    stored between calls, so nobody may write to it."""
    if not may_store():
        return make()
    if not isinstance(device, torch.device) or device.type != 'cpu' and device.index is None:
        device = torch.empty(0, device=device).device  # 'cuda' may mean one of several.
    # A CUDA graph would read memory that was dropped from the cache since.
    if device.type == 'cuda' and torch.cuda.is_current_stream_capturing():
        return make()
    return cache_of(device).get_or_make(key, make)


def may_store() -> bool:
    """Whether values may be stored: not while compiling, tracing, or in a mode that replaces
    tensors (fake tensors, counters)."""
    return not (is_compiling() or torch._C._len_torch_dispatch_stack()
                or torch._C._get_tracing_state() or torch._C._are_functorch_transforms_active())
