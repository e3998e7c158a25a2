"""What an encoding gives one query: its buckets and its logit terms, on the grid of the keys."""
from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from mmposenc.encodings.base import RelativeEncoding
from mmposenc.functional.buckets import bucket_ids
from mmposenc.functional.grids import Grid, GridLike, as_grid, key_grid

Array = NDArray[Any]


def bucket_map(method: str, hw_query: GridLike, cell: tuple[int, int],
               hw_key: GridLike | None = None, **options: Any) -> Array:
    """Buckets of all keys for one query (iRPE, ICCV 2021, Fig. 2).

    Args:
        method: as :func:`mmposenc.functional.bucket_ids`.
        hw_query: (H, W) of the queries.
        cell: (row, column) of the query.
        hw_key: (Hk, Wk) of the keys, by default the query grid.
        options: ``ratio`` or ``alpha``, ``beta``, ``gamma``; ``index``; ``quantization``.

    Returns:
        (Hk, Wk) whole numbers; (2, Hk, Wk) for 'cross', rows then columns.

    Raises:
        ValueError: if the cell is not on the query grid, or an option does not fit.
    """
    query = query_index(hw_query, cell)
    key = key_grid(hw_query, hw_key)
    ids = bucket_ids(method, hw_query, hw_key, **options)
    if isinstance(ids, tuple):
        return np.stack([each[query].view(key.hw).numpy() for each in ids])
    found: Array = ids[query].view(key.hw).numpy()
    return found


def bias_map(encoding: RelativeEncoding, hw_query: GridLike, cell: tuple[int, int],
             hw_key: GridLike | None = None, *, q: Tensor | None = None, k: Tensor | None = None
             ) -> Array:
    """What an encoding adds to one query's logits.

    Args:
        encoding: any relative encoding.
        hw_query, cell, hw_key: as :func:`bucket_map`.
        q, k: scaled queries and keys (B, heads, L, head_dims) of a contextual encoding; those of
            the first image are taken.

    Returns:
        (heads or 1, Hk, Wk), prefix tokens left out.

    Raises:
        ValueError: if the cell is not on the grid, or a contextual encoding lacks q and k.
    """
    query = query_index(hw_query, cell)
    terms = encoding.bias_map(hw_query, hw_key, q=q, k=k)
    return on_grid(terms[0, :, encoding.num_prefix_tokens + query], key_grid(hw_query, hw_key),
                   encoding.num_prefix_tokens)


def query_index(hw_shape: GridLike, cell: tuple[int, int]) -> int:
    """Place of a cell among the flattened cells.

    Raises:
        ValueError: if it is not on the grid.
    """
    grid = as_grid(hw_shape)
    row, column = cell
    if not (0 <= row < grid.height and 0 <= column < grid.width):
        raise ValueError(f'cell=({row}, {column}) must lie on hw_shape=({grid.height}, '
                         f'{grid.width})')
    return row * grid.width + column


def on_grid(by_key: Tensor, key: Grid, num_prefix_tokens: int) -> Array:
    """(heads, P + Hk * Wk) of one query to (heads, Hk, Wk)."""
    cells = by_key.detach()[:, num_prefix_tokens:].float().cpu()
    found: Array = cells.reshape(-1, *key.hw).numpy()
    return found
