"""How alike the positions of an encoding are, by how far apart they lie."""
from __future__ import annotations

from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, nn

from mmposenc.functional.grids import as_grid

from ..figures.contributions import record_contributions
from ..figures.maps import Array
from ..figures.subjects import reference_cells
from ..figures.token_figures import cosine_similarity
from ..figures.watching import AttentionCall, given_arguments, total, watch_attention
from .attention import centres
from .features import Examined, grids_of, is_encoder
from .measure import Measure, line, table

#: Rows and columns of cells that are compared with all cells.
REFERENCES = 14

SIMILARITY = Measure(
    'position_similarity', 'Similarity of positions by distance',
    's(d) = mean of cos(v_i, v_j) = v_i . v_j / (|v_i| |v_j|) over all pairs of different cells '
    f'whose distance rounds to d; i are {REFERENCES} x {REFERENCES} cells at most. v_i is what an '
    "encoding gives cell i of the first image: a token encoding's is what it adds to the cell's "
    "token; a relative encoding's all that it adds to the cell's logits, every head and key (of "
    "the first window, where there are windows); a rotary encoding's a query of ones, as it is "
    "turned there; a DETR's what it adds to queries and keys.",
    'cosine', 'distance, cells', 'cosine similarity')


class Positions(NamedTuple):
    """What one encoding gives each cell: (H * W, C) on a grid (H, W)."""

    name: str
    hw_shape: tuple[int, int]
    vectors: Array


def positions_of(examined: Examined, image: Tensor) -> list[Positions]:
    """What every encoding gives the cells of an image (1, C, H, W): token encodings first, then a
    DETR's positions, then attention layers, each in the order in which they run."""
    absolute: list[Positions] = []
    relative: list[Positions] = []

    def note_attention(call: AttentionCall) -> None:
        found = _relative(call)
        if found is not None:
            relative.append(found)

    def note_encoder(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        given = given_arguments(module, args, kwargs)
        added, grids = given.get('query_pos'), grids_of(given)
        if added is not None and len(grids) == 1:
            absolute.append(Positions('encoder positions', grids[0],
                                      added[0].detach().cpu().numpy()))

    with ExitStack() as stack:
        tokens = stack.enter_context(record_contributions(examined.model))
        stack.enter_context(watch_attention(examined.model, note_attention))
        for module in examined.model.modules():
            if is_encoder(module):
                stack.callback(module.register_forward_pre_hook(
                    note_encoder, with_kwargs=True).remove)
        examined.maps(image)
    return [Positions(each.name, each.hw_shape, each.added) for each in tokens] + (
        absolute + relative)


def _relative(call: AttentionCall) -> Positions | None:
    """Of one attention layer; None without an encoding that changes logits."""
    encoding: Any = call.module.rel_pos_encoding
    if encoding is None:
        return None
    grid, key = call.grids
    prefix = call.num_prefix_tokens
    added = total(call.terms)
    if added is not None:
        vectors = added[0, :, prefix:, prefix:]
    elif encoding.has_rotation:
        some = call.weights.new_ones(1, call.weights.shape[1], prefix + grid.num_cells,
                                     encoding.head_dims)
        keys = some[:, :, :1].expand(-1, -1, prefix + key.num_cells, -1)
        vectors = encoding.rotate(some, keys, grid, key)[0][0, :, prefix:]
    else:
        return None
    return Positions(call.name, grid.hw,
                     vectors.transpose(0, 1).flatten(1).detach().float().cpu().numpy())


def by_distance(positions: Positions) -> list[float]:
    """Mean cosine similarity of cells at distance 1, 2, ..., NaN where no two are so far apart; of
    reference cells to all."""
    height, width = positions.hw_shape
    chosen = np.array([row * width + col for line in reference_cells((height, width), REFERENCES)
                       for row, col in line])
    cells = centres(as_grid(positions.hw_shape)).numpy()
    apart = np.linalg.norm(cells[chosen][:, None] - cells, axis=-1).round().astype(int)
    similar = cosine_similarity(positions.vectors[chosen], positions.vectors)
    count = np.bincount(apart.ravel())
    total = np.bincount(apart.ravel(), similar.ravel())
    means = np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
    return [float(each) for each in means[1:]]  # 0 is a cell with itself


def measure_similarity(examined: Examined, image: Tensor) -> list[Measure]:
    """:data:`SIMILARITY`.

    Args:
        examined: the model.
        image: (1, C, H, W).
    """
    present = [each for each in positions_of(examined, image) if len(each.vectors) > 1]
    found = [each for each in present if each.vectors.any()]
    zeros = ', '.join(each.name for each in present if not each.vectors.any())
    if not found:
        return [SIMILARITY.missing(f'all that encodings add is zero ({zeros})' if zeros else
                                   'no encoding of this project adds to tokens or logits of more '
                                   'than one cell')]
    means = [by_distance(each) for each in found]
    longest = max(map(len, means))
    names = [each.name for each in found]
    neighbours = [each[0] for each in means]
    return [SIMILARITY.of(
        f'The value is that of neighbours (d = 1), mean of {len(found)} encodings.'
        + (f' These add zero: {zeros}.' if zeros else ''),
        sum(neighbours) / len(neighbours),
        [line(name, range(1, len(each) + 1), each)
         for name, each in zip(names, means, strict=True)],
        table(names, [f'd = {d}' for d in range(1, longest + 1)],
              [each + [None] * (longest - len(each)) for each in means]))]


