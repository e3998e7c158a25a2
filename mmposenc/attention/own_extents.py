"""Padded batches under an encoding that depends on the size of the whole grid."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..encodings.base import RelativeEncoding
from ..functional.grids import Grid, extents_of_several
from ..functional.masking import noted_extents

#: Attention of one image: (q, k, v), encoding, grids, key padding, options -> output and weights.
Run = Callable[[tuple[Tensor, ...], RelativeEncoding, tuple[Grid, Grid], Tensor | None, Any],
               tuple[Tensor, Tensor | None]]


# Compiled code goes on before and after it: images would be graphs, one for each size.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def attend_on_own_extents(run: Run, qkv: tuple[Tensor, Tensor, Tensor],
                          encoding: RelativeEncoding, grids: tuple[Grid, Grid],
                          options: Any) -> tuple[Tensor, Tensor | None]:
    """Attention of each image on the part of the grids that it fills.

    Args:
        run: attention of one image.
        qkv: q (B, heads, Lq, head_dims); k, v (B, heads, Lk, head_dims).
        encoding: one that is not ``cellwise``.
        grids: of queries and keys of the whole batch.
        options: of :func:`mmposenc.attention.attend`, ``key_padding_mask`` among them.

    Returns:
        (B, heads, Lq, head_dims), zero at padded queries, and the weights (B, heads, Lq, Lk), zero
        at padding, if ``run`` gives them.

    Raises:
        ValueError: while exporting; for videos; without a mask of the queries where keys lie on
            another grid; for valid cells that are no top-left rectangle.
    """
    name = type(encoding).__name__
    if torch.compiler.is_compiling():
        raise ValueError(f'{name} depends on the size of each image: padded batches are computed '
                         f'image by image, which cannot be exported; leave the mask out')
    if max(grid.frames for grid in grids) > 1:
        raise ValueError(f'{name} depends on the size of each image; key_padding_mask of videos '
                         f'(q_grid={grids[0].shape}) needs an encoding that is cellwise')
    prefix, key_mask = encoding.num_prefix_tokens, options['key_padding_mask']
    query_mask = options.get('query_padding_mask')
    if query_mask is None and grids[0] != grids[1]:
        raise ValueError(f'query_padding_mask=None, but {name} depends on the size of each image; '
                         f'with keys on another grid a mask of the queries is required')
    masks = ((key_mask, grids[1]),) if query_mask is None else (
        (query_mask, grids[0]), (key_mask, grids[1]))
    found = _extents(masks, prefix)
    queries, keys = found[0], found[-1]
    outs, all_weights = [], []
    for image, extents in enumerate(zip(queries, keys, strict=True)):
        own = [grid._replace(height=rows, width=cols)
               for grid, (rows, cols) in zip(grids, extents, strict=True)]
        places = [_places(grid, part, prefix, key_mask.device)
                  for grid, part in zip(grids, own, strict=True)]
        x = tuple(_take(each[image:image + 1], 2, index)
                  for each, index in zip(qkv, (places[0], places[1], places[1]), strict=True))
        hidden = None  # a caller's own mask may hide prefix tokens
        if prefix and noted_extents(key_mask) is None:
            hidden = _take(key_mask[image:image + 1], 1, places[1])
            hidden = hidden & ~hidden.all(1, keepdim=True)
        out, weights = run(x, encoding, (own[0], own[1]), hidden,
                           _own_options(options, image, *places))
        outs.append(_put(out, 2, places[0], qkv[0].shape[2]))
        if weights is not None:
            weights = _put(weights, 3, places[1], qkv[1].shape[2])
            all_weights.append(_put(weights, 2, places[0], qkv[0].shape[2]))
    return torch.cat(outs), torch.cat(all_weights) if all_weights else None


def _extents(masks: Sequence[tuple[Tensor, Grid]], prefix: int) -> list[list[tuple[int, int]]]:
    """Rows and columns that each image fills of each mask's grid; all of them for an image of
    padding alone, whose output the caller drops."""
    noted = [noted_extents(mask) for mask, _ in masks]
    if None not in noted:
        return noted  # type: ignore[return-value]
    cells = [mask[:, prefix:] for mask, _ in masks]
    return extents_of_several([
        (mask & ~mask.all(1, keepdim=True)).reshape(-1, *grid.hw)
        for mask, (_, grid) in zip(cells, masks, strict=True)])


def _places(grid: Grid, own: Grid, prefix: int, device: torch.device) -> Tensor | None:
    """Numbers of the tokens of a part of the grid, prefix tokens included; None for all."""
    if own.hw == grid.hw:
        return None
    rows = torch.arange(own.height, device=device)
    cells = rows[:, None] * grid.width + torch.arange(own.width, device=device)
    return torch.cat((torch.arange(prefix, device=device), cells.flatten() + prefix))


def _own_options(options: Any, image: int, queries: Tensor | None, keys: Tensor | None) -> Any:
    """The options with the masks of one image's tokens."""
    own = dict(options)
    mask, regions = options.get('attn_mask'), options.get('regions')
    if mask is not None:
        mask = mask[(None,) * (4 - mask.dim())]
        mask = mask[image:image + 1] if mask.shape[0] > 1 else mask
        for dim, index in ((2, queries), (3, keys)):
            mask = _take(mask, dim, index) if mask.shape[dim] > 1 else mask
        own['attn_mask'] = mask
    if regions is not None:
        own['regions'] = _take(regions[image % len(regions)][None], 1, queries)
    return own


def _take(x: Tensor, dim: int, index: Tensor | None) -> Tensor:
    return x if index is None else x.index_select(dim, index)


def _put(x: Tensor, dim: int, index: Tensor | None, size: int) -> Tensor:
    """Undo :func:`_take`, with zeros elsewhere."""
    if index is None:
        return x
    shape = (*x.shape[:dim], size, *x.shape[dim + 1:])
    return x.new_zeros(shape).index_copy(dim, index, x)
