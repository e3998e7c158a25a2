"""What ContextPool predicts for an image: weights, sizes, and what one token pools."""
from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mmposenc.encodings.context_pool import ContextPool
from mmposenc.functional.masking import split_prefix
from mmposenc.functional.pooling.kernels import axis_logits

from .layouts import check_place
from .maps import Array
from .watching import watched


@dataclass
class PoolRecord:
    """What one ContextPool predicted for the first image.

    name: of the module. hw_shape, cell: grid and (row, column) of the marked token. weights:
    (H, W), their mean is 1; None where they are not learned. sigma: (H, W) in cells, None without
    sizes. sizes: (H, W), the predicted s from 0 to 1, of which sigma is a multiple. share: (H, W),
    the weights with which the marked token's mean is taken, which sum to 1; None for localities
    without sizes, weights by pairs, and sequences.
    """

    name: str
    hw_shape: tuple[int, int]
    cell: tuple[int, int]
    weights: Array | None
    sigma: Array | None
    share: Array | None
    sizes: Array | None = None


@contextmanager
def record_context_pools(model: nn.Module, at: tuple[float, float] = (0.5, 0.5)
                         ) -> Iterator[list[PoolRecord]]:
    """Record every ContextPool that runs inside ``model``.

    Args:
        model: a backbone or anything that holds one, best in evaluation mode.
        at: where the marked token lies, as fractions of height and width.

    Yields:
        The list that records are added to, in the order in which the layers run.

    Raises:
        ValueError: if ``at`` is not inside the image.
    """
    check_place(at)
    records: list[PoolRecord] = []

    def note(name: str, module: ContextPool, given: dict[str, Any], _: Any) -> None:
        tokens = split_prefix(given['x'], given.get('num_prefix_tokens', 0))[1]
        records.append(_record(name, module, tokens[:1], given['hw_shape'], at))

    with watched(model, ContextPool, note):
        yield records


@torch.no_grad()
def _record(name: str, module: ContextPool, x: Tensor, hw_shape: tuple[int, int],
            at: tuple[float, float]) -> PoolRecord:
    height, width = hw_shape
    cell = int(at[0] * height), int(at[1] * width)
    logits, sigma = module.predict(x, hw_shape)

    def on_map(values: Tensor) -> Array:
        found: Array = values.float().view(height, width).cpu().numpy()
        return found

    weights = None
    if module.has_weights:
        weights = on_map(logits.softmax(1) * logits.shape[1] if module.weights == 'learned'
                         else 2 * logits.sigmoid())
    share = sizes = None
    if sigma is not None:
        extent = height * width if module.dims == 1 else (height + width) / 2
        sizes = on_map(sigma / (module.ratio * extent))
    if sigma is not None and module.dims == 2 and module.weights != 'nonlocal':
        share = on_map(_share(module, logits, sigma, hw_shape, cell))
    return PoolRecord(name, hw_shape, cell, weights, None if sigma is None else on_map(sigma),
                      share, sizes)


def _share(module: ContextPool, logits: Tensor, sigma: Tensor, hw_shape: tuple[int, int],
           cell: tuple[int, int]) -> Tensor:
    """w_j g_ij / sum_j w_j g_ij of one token i, (H, W)."""
    gaussian = module.locality == 'gaussian'
    size = sigma[0, cell[0] * hw_shape[1] + cell[1]] * (1 if gaussian else math.sqrt(3))
    rows, cols = (axis_logits('gaussian' if gaussian else 'window',
                              place - torch.arange(length, dtype=size.dtype, device=size.device),
                              size[None], math.inf, False)
                  for place, length in zip(cell, hw_shape, strict=True))
    own = logits[0].view(hw_shape)
    if module.weights == 'unnormalized':
        own = torch.zeros_like(own)
    return (own + rows[:, None] + cols).flatten().softmax(0)


def size_distributions(records: Sequence[PoolRecord]) -> list[dict[str, str | float]]:
    """The sizes that each layer predicts, in numbers (the paper's Figure 4).

    Args:
        records: from :func:`record_context_pools`, of one image or several; what a layer predicts
            for all of them is taken together.

    Returns:
        For each layer with sizes, in the order in which they ran: 'layer', its name; 'tokens', how
        many there are; 'least', 'q25', 'median', 'q75', 'most' and 'mean' of s, from 0 to 1; and
        'median_cells', the median of sigma.
    """
    found: dict[str, list[PoolRecord]] = {}
    for record in records:
        if record.sizes is not None:
            found.setdefault(record.name, []).append(record)
    rows: list[dict[str, str | float]] = []
    for name, group in found.items():
        sizes = _together(each.sizes for each in group)
        quartiles = np.quantile(sizes, (0.0, 0.25, 0.5, 0.75, 1.0)).tolist()
        rows.append(dict(
            layer=name, tokens=sizes.size, mean=float(sizes.mean()),
            **dict(zip(('least', 'q25', 'median', 'q75', 'most'), quartiles, strict=True)),
            median_cells=float(np.median(_together(each.sigma for each in group)))))
    return rows


def _together(maps: Iterable[Array | None]) -> Array:
    return np.concatenate([np.ravel(each) for each in maps if each is not None])


def write_size_distributions(rows: Sequence[dict[str, str | float]], path: str | Path) -> Path:
    """Write the numbers as CSV, a line a layer."""
    path = Path(path)
    with path.open('w', newline='') as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path
