"""Shows what encodings do: kernels, similarity of positions, biases and buckets by offset,
attention of one token, and how far the output depends on absolute position."""
from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from mmposenc.backbones.encodings_of_model import encoding_kinds, relative_name
from mmposenc.encodings import IRPE
from mmposenc.encodings.base import RelativeEncoding, Rotation
from mmposenc.functional.grids import Grid, grid_offsets

from .drawing import Array, Panel, Picture, tile_sheet
from .recording import AttentionCall, InspectedModel

#: The largest numbers of kernels, heads, encodings, and maps of buckets that are drawn.
KERNELS, HEADS, ENCODINGS, METHODS = 48, 8, 4, 6
#: Additions below this value stand for minus infinity: the head does not attend to the key.
UNSEEN = -1e3
#: The largest number of prefix tokens in front of a square table of another library.
PREFIX = 5
#: The number of rows and of columns of the cells whose similarity to all others is drawn.
REFERENCES = 5


def all_pictures(subject: InspectedModel, image: Tensor, photo: Array | None,
                 at: tuple[float, float]) -> list[Picture]:
    """All pictures that apply to a model.

    Args:
        subject: the model.
        image: (1, C, H, W), as it takes it.
        photo: (h, w, 3) from 0 to 1, the image for readers; None is noise.
        at: the place of the token whose attention is drawn, as fractions of height and width.
    """
    calls = subject.calls(image)
    pictures = [kernels_picture(subject.model), similarity_picture(subject, image),
                offsets_picture(calls), buckets_picture(calls), attention_picture(calls, photo, at)]
    return [each for each in pictures if each.panels]


def kernels_picture(model: nn.Module) -> Picture:
    """The kernels of the convolutions of each kind of encoding, of the first module of a kind."""
    by_module: dict[str, Array] = {}
    panels = []
    for kind in encoding_kinds(model):
        for name, module in list(kind.modules.items())[:1]:
            for key, weight in module.named_parameters():
                if weight.dim() == 4 and weight.shape[-1] > 1 and len(by_module) < ENCODINGS:
                    maps = weight.detach().float().cpu().flatten(0, 1)[:KERNELS].numpy()
                    label = type(module).__name__
                    by_module[f'{label}, {name}.{key}'] = maps
                    panels.append(Panel(_wrapped_title(label, f'{name}.{key}'),
                                        tile_sheet(_tiled_in_rows(maps))))
    return Picture(
        'kernels', f'Each small square is the kernel of one channel, at most {KERNELS} '
        'of them: red adds a neighbour, blue subtracts it.', panels, dict(by_module),
        dict(unit='weight', diverging=True, columns=2, inches=3.6))


def _tiled_in_rows(maps: Array) -> Array:
    """Arrange maps (N, k, k) in rows, about 4 : 3 in all; the last row is filled up with NaN."""
    columns = math.ceil(math.sqrt(len(maps) * 4 / 3))
    filled = np.pad(maps, ((0, -len(maps) % columns), (0, 0), (0, 0)), constant_values=np.nan)
    rows: Array = filled.reshape(-1, columns, *maps.shape[1:])
    return rows


def _wrapped_title(*lines: str) -> str:
    """A title whose lines fit."""
    return '\n'.join(line[start:start + 40] for line in lines for start in range(0, len(line), 40))


def similarity_picture(subject: InspectedModel, image: Tensor) -> Picture:
    """Cosine similarity of the positions of some cells and of all cells, for each kind of encoding
    (ViT, Dosovitskiy et al., ICLR 2021, Fig. 7)."""
    by_kind: dict[str, tuple[str, tuple[int, int], Array]] = {}
    for kind, name, hw_shape, vectors in _added_vectors_by_encoding(subject, image):
        if vectors.any() and len(vectors) > 1 and len(by_kind) < ENCODINGS:
            by_kind.setdefault(kind, (name, hw_shape, vectors.numpy()))
    panels, numbers = [], {}
    for kind, (name, hw_shape, codes) in by_kind.items():
        cells = reference_cells(hw_shape)
        index = [[row * hw_shape[1] + column for row, column in line] for line in cells]
        maps = cosine_matrix(codes)[np.array(index)].reshape(*np.shape(index), *hw_shape)
        panels.append(Panel(_wrapped_title(kind, name), tile_sheet(maps)))
        numbers[kind] = dict(module=name, cells=cells, maps=maps)
    return Picture(
        'similarity', 'Each tile compares one of '
        f'{REFERENCES} x {REFERENCES} cells with all cells: red cells have a position like its '
        'own, white ones have nothing in common with it.', panels, numbers,
        dict(unit='cosine', diverging=True, columns=2, inches=4.0))


def _added_vectors_by_encoding(subject: InspectedModel, image: Tensor
                               ) -> Iterator[tuple[str, str, tuple[int, int], Tensor]]:
    """What token encodings add to the tokens, and tables of other libraries, (1, P + H * W, C)."""
    for each in subject.additions(image):
        yield type(each.module).__name__, each.name, each.hw_shape, each.added
    for kind in encoding_kinds(subject.model):
        for name, table in kind.parameters.items() if kind.noun == 'table' else ():
            side = math.isqrt(table.shape[-2]) if table.dim() == 3 and len(table) == 1 else 0
            if side > 1 and table.shape[-2] - side * side <= PREFIX:
                vectors = table.detach()[0, -side * side:].float().cpu()
                yield kind.text.partition(' in ')[0], name, (side, side), vectors


def reference_cells(hw_shape: tuple[int, int], count: int = REFERENCES
                    ) -> list[list[tuple[int, int]]]:
    """``count`` x ``count`` cells that are spread evenly over a grid; all rows or columns if it has
    no more."""
    rows, columns = ([int((part + 0.5) * side / number) for part in range(number)]
                     for side in hw_shape for number in (min(count, side),))
    return [[(row, column) for column in columns] for row in rows]


def cosine_matrix(vectors: Array) -> Array:
    """The cosines (L, L) of vectors (L, C); 0 for a vector of zeros."""
    units = functional.normalize(torch.from_numpy(vectors).double(), eps=1e-300)
    products: Array = (units @ units.T).clamp(-1.0, 1.0).numpy()
    return products


def offsets_picture(calls: list[AttentionCall]) -> Picture:
    """What each kind of relative encoding does by the offset of the key from the query, for each
    head of the first attention: the number added to the logit, or for rotary encodings the cosine
    of the angle between a query and a key that were equal before they were turned."""
    panels, units = [], []
    numbers: dict[str, object] = {}
    for call in calls:
        encoding = call.module.rel_pos_encoding
        if not isinstance(encoding, RelativeEncoding):
            continue
        name, pairs, what = relative_name(encoding), call.added_between_cells, 'added to the logit'
        if name in numbers or len(numbers) == ENCODINGS:
            continue
        if pairs is None and encoding.rotation is not None:
            pairs, what = rotary_cosine_matrix(encoding.rotation, call.grid, call.key), 'cosine'
        if pairs is None:
            continue
        rows, columns, table = mean_by_offset(pairs.float().cpu().numpy(), call.grid, call.key)
        table = np.where(table < UNSEEN, np.nan, table)
        star = float(np.abs(rows).argmin()), float(np.abs(columns).argmin())
        ticks = (float(rows[0]), float(rows[-1])), (float(columns[0]), float(columns[-1]))
        panels += [Panel(f'{name}\nhead {head}', values, ticks, star)
                   for head, values in enumerate(table[:HEADS])]
        units.append(what)
        numbers[name] = dict(module=call.name, what=what, rows=rows, columns=columns, table=table)
    return Picture(
        'offsets', 'The star is the query; each cell is a key at '
        'that offset, and its colour what the encoding does for the pair: the mean over the pairs '
        'of this image with that offset. Keys that a head does not attend to are white.',
        panels, numbers, dict(unit=' or '.join(dict.fromkeys(units)), diverging=True,
                              xlabel='key - query, columns', ylabel='key - query, rows'))


@torch.no_grad()
def rotary_cosine_matrix(encoding: Rotation, grid: Grid, key: Grid) -> Tensor:
    """The cosine (heads, L, Lk) between one vector rotated at every query and at every key. All
    channels of the vector are equal, so that each plane counts the same."""
    prefix = encoding.num_prefix_tokens
    some = next(encoding.parameters(), torch.zeros(()))
    q, k = (some.new_full((1, encoding.num_heads, prefix + cells, encoding.head_dims),
                          encoding.head_dims ** -0.5) for cells in (grid.num_cells, key.num_cells))
    q, k = encoding.rotate(q, k, grid, key)
    return functional.cosine_similarity(q[0, :, prefix:, None], k[0, :, None, prefix:], dim=-1)


def mean_by_offset(pairs: Array, query: Grid, key: Grid) -> tuple[Array, Array, Array]:
    """The mean over all pairs of cells with the same offset.

    Args:
        pairs: (heads, L, Lk).
        query, key: the grids, the key's in cells of the query's.

    Returns:
        Offsets (Dr,) of rows and (Dc,) of columns, key minus query, ascending, and (heads, Dr, Dc);
        NaN for offsets that no pair has.
    """
    rows, row_index, columns, column_index = (each.numpy() for each in grid_offsets(query, key))
    number = (row_index[:, None, :, None] * len(columns) + column_index[None, :, None, :]).ravel()
    size = len(rows) * len(columns)
    count = np.bincount(number, minlength=size)
    with np.errstate(invalid='ignore'):
        table = np.stack([np.bincount(number, each.ravel(), size) / count for each in pairs])
    # Offsets of the project are query minus key; in a map around the query they have the opposite
    # sign.
    table = table.reshape(len(pairs), len(rows), len(columns))[:, ::-1, ::-1]
    return 0.0 - rows[::-1], 0.0 - columns[::-1], table


def buckets_picture(calls: list[AttentionCall]) -> Picture:
    """The bucket of every key for the query in the middle, for each different iRPE (Wu et al., ICCV
    2021, Fig. 6 to 9)."""
    panels: list[Panel] = []
    numbers: dict[str, Any] = {}
    for call in calls:
        encoding: Any = call.module.rel_pos_encoding
        for part in () if encoding is None else encoding.modules():
            if not isinstance(part, IRPE):
                continue
            row, column = call.grid.height // 2, call.grid.width // 2
            query, prefix = row * call.grid.width + column, part.num_prefix_tokens
            for axis, ids in zip(part.axes, part.bucket_ids(call.grid, call.key), strict=True):
                name = f'{part.method}{axis.replace("_", ", ")}, {call.grid.height} x ' \
                    f'{call.grid.width}'
                if name in numbers or len(panels) == METHODS:
                    continue
                maps = ids[prefix + query, prefix:].view(call.key.hw).cpu().numpy()
                star = ((row + 0.5) / call.key.stride_h - 0.5,
                        (column + 0.5) / call.key.stride_w - 0.5)
                ends = (0, call.key.height - 1), (0, call.key.width - 1)
                panels.append(Panel(f'iRPE, {name}', maps, ends, star, categories=True))
                numbers[name] = dict(module=call.name, query=[row, column], buckets=maps)
    return Picture(
        'buckets', 'Keys of one colour share a bucket, so that the query (star) '
        'cannot tell their offsets apart; colours repeat after 20.', panels, numbers,
        dict(xlabel='key, columns', ylabel='key, rows', columns=5))


def attention_picture(calls: list[AttentionCall], photo: Array | None, at: tuple[float, float]
                      ) -> Picture:
    """The attention of one token, mean of the heads, over the photo: in the first layer, one in
    the middle, and the last."""
    panels, numbers = [], {}
    for index in sorted({0, len(calls) // 2, len(calls) - 1}) if calls else ():
        call = calls[index]
        weights = call.weights_of_token(at).numpy()
        star = tuple(share * side - 0.5 for share, side in zip(at, weights.shape, strict=True))
        panels.append(Panel(_wrapped_title(call.name), weights, star=star, photo=photo))
        numbers[call.name] = weights
    return Picture(
        'attention', 'The colour is the weight that the token at the '
        'star gives to each cell, mean of the heads.', panels,
        {'at': list(at), 'weights': numbers},
        dict(unit='attention weight', columns=3, inches=3.4))


@torch.no_grad()
def shift_error(subject: InspectedModel, image: Tensor, pixels: int) -> float | None:
    """How far the output of a model depends on absolute position.

    Args:
        subject: the model.
        image: (1, C, H, W), as it takes it.
        pixels: by how many the picture is rolled in both directions, whole cells of every map.

    Returns:
        ||f(x rolled) - f(x) rolled|| / ||f(x)|| of the last output, a map (1, C, h, w) or a pooled
        vector (1, C), which should not change; None if it is neither, or no other cell is left to
        roll to.
    """
    if min(image.shape[-2:]) <= pixels:
        return None
    still = _last_output(subject, image)
    if still is None or still.dim() not in (2, 4):
        return None
    moved = _last_output(subject, image.roll((pixels, pixels), (-2, -1)))
    if still.dim() == 4:
        cells = pixels * still.shape[-2] // image.shape[-2]
        still = still.roll((cells, cells), (-2, -1))
    return float((moved - still).norm() / still.norm())


def _last_output(subject: InspectedModel, image: Tensor) -> Tensor | None:
    outputs = [each for each in tree_leaves(subject.run(image)) if isinstance(each, Tensor)]
    return outputs[-1].float() if outputs else None
