"""Measures of attention (distance, entropy) and of encodings (similarity of positions)."""
from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mmposenc.attention import PlainWindowAttention
from mmposenc.functional.grids import Grid, as_grid
from mmposenc.functional.windows import Windows

from ..figures.maps import Array
from ..figures.recording import AttentionCall, given_arguments, total, watch_attention
from ..figures.subjects import reference_cells
from ..figures.token_figures import cosine_similarity, record_contributions
from .features import Examined, grids_of, is_encoder
from .measure import Measure, Series, line, table

_DISTANCE = (
    'd = mean over cells i of sum_j a_ij |p_i - p_j| / sum_j a_ij, where a_ij is the attention '
    'weight of query cell i and key cell j, and p are the centres of cells (ViT, Dosovitskiy et '
    'al., ICLR 2021, Fig. 7). Class tokens and padding of windows have no position and are left '
    'out. Keys of a reduced grid lie at the centres of their cells. "uniform": all keys that a '
    'cell may attend to have the same weight. ')
_ENTROPY = (
    'H = mean over cells i of - sum_j a_ij log2 a_ij, over all keys that cell i may attend to, '
    'class tokens included. ')

DISTANCE = Measure(
    'attention_distance', 'Mean attention distance', _DISTANCE + 'In pixels of the input.',
    'pixels', 'attention layer, in order', 'mean distance, pixels')
DISTANCE_CELLS = Measure(
    'attention_distance_cells', 'Mean attention distance in cells', _DISTANCE + 'In cells of the '
    "layer's grid.", 'cells', 'attention layer, in order', 'mean distance, cells')
ENTROPY = Measure(
    'attention_entropy', 'Entropy of attention', _ENTROPY + '0: all weight on one key; log2 n: n '
    'keys with equal weights.', 'bits', 'attention layer, in order', 'entropy, bits')
ENTROPY_SHARE = Measure(
    'attention_entropy_share', 'Entropy of attention, share of the largest', _ENTROPY + 'Divided '
    'by log2 n of the n keys that the cell may attend to; cells with one key are left out.',
    'share of log2 n', 'attention layer, in order', 'share of the largest entropy')
_ALL = (DISTANCE, DISTANCE_CELLS, ENTROPY, ENTROPY_SHARE)


@dataclass
class Layer:
    """Means of one layer, each (heads,); ``uniform``: the mean distance with equal weights."""

    name: str
    values: dict[str, Tensor] = field(default_factory=dict)
    uniform: dict[str, float] = field(default_factory=dict)


def centres(grid: Grid) -> Tensor:
    """Row and column (H * W, 2) of the centre of each cell, in cells of the queries."""
    rows, cols = (((torch.arange(side) + 0.5) * stride - 0.5) for side, stride in
                  ((grid.height, grid.stride_h), (grid.width, grid.stride_w)))
    return torch.stack(torch.meshgrid(rows, cols, indexing='ij'), -1).view(-1, 2)


def mean_distance(weights: Tensor, apart: Tensor, counted: Tensor) -> Tensor:
    """Mean attention distance (heads,).

    Args:
        weights: (B, heads, L, Lk).
        apart: (L, Lk) distance of each query to each key.
        counted: (1 or B, L) bool, the queries in the mean.
    """
    sums = weights.sum(-1)
    reach = (weights * apart).sum(-1) / sums
    return _over(reach, counted[:, None] & (sums > 0))


def entropy(weights: Tensor) -> Tensor:
    """-sum_j a_ij log2 a_ij of weights (..., Lk), in bits."""
    return -torch.xlogy(weights, weights).sum(-1) / torch.log(torch.tensor(2.0))


def _over(values: Tensor, counted: Tensor) -> Tensor:
    """Mean (heads,) of values (B, heads, L) over the counted queries."""
    counted = counted.expand_as(values)
    return torch.where(counted, values, 0.0).sum((0, 2)) / counted.sum((0, 2))


def layer_of(call: AttentionCall, hw_shape: tuple[int, int]) -> Layer:
    """Distances and entropies of one call of attention.

    Args:
        call: recorded by :func:`~mmposenc.lab.figures.recording.watch_attention`.
        hw_shape: (H, W) of the images in pixels.
    """
    query, key = call.grids
    prefix = call.num_prefix_tokens
    weights = call.weights.float().cpu()[:, :, prefix:]
    real, allowed = (each.repeat(len(weights) // len(each), *(1,) * (each.dim() - 1))
                     for each in _keys(call, query, key, prefix))
    offsets = centres(query)[:, None] - centres(key)
    pixels = torch.tensor([side / cells for side, cells in
                           zip(hw_shape, call.map_grid.hw, strict=True)])
    on_map = real if query == key else real.new_ones(len(real), key.num_cells)
    cells = weights[..., prefix:] * on_map[:, None, None]
    even = (allowed[..., prefix:] & on_map[:, None]).float()[:, None]
    layer = Layer(re.split(r'\.(?:self_)?attn', call.name)[0])
    for measure, apart in ((DISTANCE, (offsets * pixels).norm(dim=-1)),
                           (DISTANCE_CELLS, offsets.norm(dim=-1))):
        layer.values[measure.name] = mean_distance(cells, apart, real)
        layer.uniform[measure.name] = float(mean_distance(even, apart, real)[0])
    most = allowed.sum(-1).float().log2()[:, None]
    bits = entropy(weights)
    layer.values[ENTROPY.name] = _over(bits, real[:, None])
    layer.uniform[ENTROPY.name] = float(_over(most, real[:, None])[0])
    layer.values[ENTROPY_SHARE.name] = _over(bits / most, real[:, None] & (most > 0))
    layer.uniform[ENTROPY_SHARE.name] = 1.0
    return layer


def _keys(call: AttentionCall, query: Grid, key: Grid, prefix: int) -> tuple[Tensor, Tensor]:
    """Masks of the queries (1 or B, L) that are cells of the map, and of the keys
    (1 or B, L, P + Lk) that they may attend to (in windows, those of the same region)."""
    length, keys = query.num_cells, prefix + key.num_cells
    real = torch.ones(1, length, dtype=torch.bool)
    allowed = torch.ones(1, length, keys, dtype=torch.bool)
    windows, regions = None, call.given.get('regions')
    if isinstance(call.module, PlainWindowAttention):
        windows = Windows(call.map_grid.hw, query.hw)
        regions = windows.regions(call.module.mask_window_padding, call.weights.device)
    elif call.placed is not None:
        windows = Windows(call.map_grid.hw, query.hw, call.placed[1])
    if windows is not None:
        real = windows.cut(torch.ones(1, call.map_grid.num_cells, 1))[..., 0] > 0
    if regions is not None:
        regions = regions.flatten(0, -2).cpu()
        allowed = regions[:, :, None] == regions[:, None]
    return real, allowed


def layers_of(examined: Examined, images: Tensor) -> list[Layer]:
    """The attention layers of a pass over images (B, C, H, W), in order of execution."""
    found: list[Layer] = []

    def note(call: AttentionCall) -> None:
        found.append(layer_of(call, (images.shape[-2], images.shape[-1])))

    with watch_attention(examined.model, note):
        examined.maps(images)
    return found


def measure_attention(examined: Examined, images: Mapping[str, Tensor]) -> list[Measure]:
    """:data:`DISTANCE`, :data:`DISTANCE_CELLS`, :data:`ENTROPY` and :data:`ENTROPY_SHARE`.

    Args:
        examined: the model.
        images: (B, C, H, W) by name; the map is of the last.
    """
    series: dict[str, list[Series]] = {each.name: [] for each in _ALL}
    layers: list[Layer] = []
    for kind, batch in images.items():
        layers = layers_of(examined, batch)
        if not layers:
            reason = ('there is no attention of this project over a grid (deformable '
                      'attention samples points)')
            return [each.missing(reason) for each in _ALL]
        for name, lines in series.items():
            lines.append(line(f'{kind}, mean of heads', range(len(layers)),
                              [float(each.values[name].mean()) for each in layers]))
    found = []
    most = max(len(each.values[ENTROPY.name]) for each in layers)
    for measure in _ALL:
        lines = series[measure.name]
        lines.append(line('uniform', range(len(layers)),
                          [each.uniform[measure.name] for each in layers]))
        rows = [each.values[measure.name].tolist() for each in layers]
        value = sum(float(each.values[measure.name].mean()) for each in layers) / len(layers)
        found.append(measure.of(
            f'Value: mean over all layers and heads on {list(images)[-1]}. Map: each layer and '
            f'head.', value, lines,
            table([each.name for each in layers], [f'head {head}' for head in range(most)],
                  [row + [None] * (most - len(row)) for row in rows])))
    return found


#: At most this number of rows and columns of cells is compared with all cells.
REFERENCES = 14

SIMILARITY = Measure(
    'position_similarity', 'Similarity of positions by distance',
    's(d) = mean of cos(v_i, v_j) = v_i . v_j / (|v_i| |v_j|) over all pairs of different cells '
    f'whose distance rounds to d; i are {REFERENCES} x {REFERENCES} cells at most. v_i is the code '
    'of cell i in the first image. For a token encoding: the vector added to the token. For a '
    "relative encoding: everything added to the cell's logits, of all heads and keys (with "
    'windows: of the first one). For a rotary encoding: a query of ones after its rotation. For '
    'a DETR: the vector added to queries and keys.',
    'cosine', 'distance, cells', 'cosine similarity')


class Positions(NamedTuple):
    """The codes (H * W, C) that one encoding gives to the cells of a grid (H, W)."""

    name: str
    hw_shape: tuple[int, int]
    vectors: Array


def positions_of(examined: Examined, image: Tensor) -> list[Positions]:
    """The codes of all encodings for an image (1, C, H, W): first of token encodings, then of a
    DETR's positions, then of attention layers, each in order of execution."""
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
    """The codes of one attention layer; None if no encoding changes its logits."""
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
    """Mean cosine similarity of reference cells and all cells at distance 1, 2, ...; NaN for a
    distance that does not occur."""
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
        return [SIMILARITY.missing(f'the encodings add zero ({zeros})' if zeros else
                                   'no encoding of this project changes tokens or logits of more '
                                   'than one cell')]
    means = [by_distance(each) for each in found]
    longest = max(map(len, means))
    names = [each.name for each in found]
    neighbours = [each[0] for each in means]
    return [SIMILARITY.of(
        f'Value: neighbours (d = 1), mean of {len(found)} encodings.'
        + (f' These encodings add zero: {zeros}.' if zeros else ''),
        sum(neighbours) / len(neighbours),
        [line(name, range(1, len(each) + 1), each)
         for name, each in zip(names, means, strict=True)],
        table(names, [f'd = {d}' for d in range(1, longest + 1)],
              [each + [None] * (longest - len(each)) for each in means]))]
