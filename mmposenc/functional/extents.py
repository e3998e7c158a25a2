"""Padding masks: made from the rows and columns that images fill of a grid, and these read back."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

import torch
import torch.nn.functional as F
from torch import Tensor

from .grids import Grid, pair, whole_cells
from .tracing import is_compiling, may_branch_on


# Not a NamedTuple: compiled code would read its numbers, and each batch of sizes would need another
# graph.
@dataclass(frozen=True, eq=False)
class PaddingMask:
    """A padding mask, and the rows and columns of the images that it was made from.

    Attributes:
        cells: (B, H, W), or of tokens (B, P + H * W), bool, True = padding.
        extents: rows and columns of each image's valid cells; None if they are not known: an
            accelerator that is asked for them has to be waited for.
    """

    cells: Tensor
    extents: Sequence[tuple[int, int]] | None = None


#: A mask whose extents may be known.
MaskLike = Tensor | PaddingMask


@overload
def cells_of(mask: MaskLike) -> Tensor: ...
@overload
def cells_of(mask: MaskLike | None) -> Tensor | None: ...
def cells_of(mask: MaskLike | None) -> Tensor | None:
    """The tensor of a mask."""
    return mask.cells if isinstance(mask, PaddingMask) else mask


def as_mask(mask: MaskLike) -> PaddingMask:
    """A mask as a record; the extents of a tensor are not known."""
    return mask if isinstance(mask, PaddingMask) else PaddingMask(mask)


def check_mask(mask: Tensor, shape: tuple[int, ...], name: str) -> None:
    """Raise ValueError if a padding mask, an argument called ``name``, is not bool or has another
    shape."""
    if mask.dtype != torch.bool or mask.shape != shape:
        raise ValueError(f'{name} has shape {tuple(mask.shape)} and dtype {mask.dtype}; {shape} '
                         f'and bool are required, True = padding')


def extents_to_mask(extents: list[tuple[int, int]], hw_shape: tuple[int, int],
                    device: torch.device) -> PaddingMask | None:
    """Padding mask (B, H, W), True = padding, of images that fill (rows, columns) of a grid;
    None when all of them fill it."""
    if all(extent == tuple(hw_shape) for extent in extents):
        return None
    return PaddingMask(cells_outside(torch.tensor(extents, device=device), hw_shape), extents)


def cells_outside(extents: Tensor, hw_shape: tuple[int, int]) -> Tensor:
    """Which cells (B, H, W) of a grid lie beyond the rows and columns (B, 2) that each image fills.
    """
    rows, cols = (torch.arange(side, device=extents.device) for side in hw_shape)
    return (rows[None, :, None] >= extents[:, 0, None, None]) | (
        cols[None, None, :] >= extents[:, 1, None, None])


def mask_at_step(padding_mask: MaskLike, step: int | tuple[int, int]) -> PaddingMask:
    """The mask (B, H', W') of a grid whose cells are ``step`` of this one's in both axes: padding
    where their first part is, since padding lies to the right and below."""
    # Not a view, because a compiler would make code of its own for each memory layout.
    down, right = pair(step)
    cells = cells_of(padding_mask)[:, ::down, ::right].contiguous()
    extents = known_extents(padding_mask)
    return PaddingMask(cells, extents and [(whole_cells(rows, down), whole_cells(cols, right))
                                           for rows, cols in extents])


def token_mask(padding_mask: MaskLike, num_prefix_tokens: int = 0) -> PaddingMask:
    """The padding mask (B, P + H * W) of tokens, made from that of their grid (B, H, W); prefix
    tokens are valid."""
    mask = as_mask(padding_mask)
    return PaddingMask(F.pad(mask.cells.flatten(1), (num_prefix_tokens, 0), value=False),
                       mask.extents)


def known_extents(padding_mask: MaskLike) -> Sequence[tuple[int, int]] | None:
    """The extents that a mask was made from; None while compiling, because compiled code would be
    made for these numbers only."""
    return None if is_compiling() else as_mask(padding_mask).extents


def read_extents(padding_mask: MaskLike) -> Sequence[tuple[int, int]]:
    """The extents that a mask was made from, else those read from its cells
    (:func:`valid_extents`)."""
    return known_extents(padding_mask) or valid_extents(cells_of(padding_mask))


def extents_of(padding_mask: Tensor) -> Tensor:
    """Rows and columns of the valid top-left rectangle of each image, (B, 2), on the mask's device.

    Args:
        padding_mask: (B, H, W) bool, True = padding, as batching pads: to the right and below.

    Raises:
        ValueError: as :func:`valid_extents`, on a CPU. An accelerator would have to wait for it,
            and masks of this project's models are rectangles by construction.
    """
    if padding_mask.device.type == 'cpu' and may_branch_on(padding_mask):
        valid_extents(padding_mask)
    return filled_extents(padding_mask)


def filled_extents(padding_mask: Tensor) -> Tensor:
    """The rows and columns (B, 2) that images fill of a grid (B, H, W), if each fills its top left.
    """
    valid = ~padding_mask
    return torch.stack((valid[:, :, 0].sum(1), valid[:, 0].sum(1)), 1)


def valid_extents(padding_mask: Tensor) -> list[tuple[int, int]]:
    """Rows and columns of the valid top-left rectangle of each image.

    Args:
        padding_mask: (B, H, W) bool, True = padding, as batching pads: to the right and below.

    Returns:
        One (rows, columns) pair an image.

    Raises:
        ValueError: if an image has no valid cell, or its valid cells are not a top-left rectangle.
    """
    return extents_of_several([padding_mask])[0]


def extents_of_several(padding_masks: Sequence[Tensor]) -> list[list[tuple[int, int]]]:
    """:func:`valid_extents` of masks of the same images on several grids; an accelerator is waited
    for once."""
    tables = []
    for mask in padding_masks:
        sides = filled_extents(mask)
        other = mask != cells_outside(sides, (mask.shape[1], mask.shape[2]))
        wrong = other.flatten(1).any(1) | (sides.prod(1) == 0)
        counted = torch.stack(((~mask).flatten(1).sum(1), wrong.long()), 1)
        tables.append(torch.cat((sides, counted), 1))
    rectangles: list[list[list[int]]] = torch.stack(tables).tolist()
    for index, (_, _, area, is_wrong) in enumerate(row for table in rectangles for row in table):
        if is_wrong:
            raise ValueError(
                f'padding_mask of image {index % len(rectangles[0])} has {area} valid cells that '
                f'are not one top-left rectangle; padding must lie to the right and below, with at '
                f'least one valid cell')
    return [[(row[0], row[1]) for row in table] for table in rectangles]


class ImagePart(NamedTuple):
    """The part of one image in a batch: its grids, the indices of its queries and keys (None for
    all), and a mask of keys (1, keys) that are padding nevertheless."""

    grids: tuple[Grid, Grid]
    queries: Tensor | None
    keys: Tensor | None
    hidden: Tensor | None = None


def parts_of_images(grids: tuple[Grid, Grid], masks: Sequence[MaskLike], prefix: int
                    ) -> list[ImagePart]:
    """The part of each image in a batch whose tokens are padded; an image of only padding has a
    part of all cells.

    Args:
        grids: the grids of queries and keys.
        masks: padding masks (B, prefix + H * W) of queries and keys, or one mask of both.
        prefix: tokens in front of either grid.

    Raises:
        ValueError: valid cells are not a rectangle at the top left.
    """
    known = [each for mask in masks if (each := known_extents(mask)) is not None]
    keys_hidden, parts = cells_of(masks[-1]), []
    # A mask of the caller's own may hide prefix tokens.
    hides_prefix = prefix > 0 and known_extents(masks[-1]) is None
    if len(known) < len(masks):
        cells = [cells_of(mask)[:, prefix:] for mask in masks]
        known = [*extents_of_several([(mask & ~mask.all(1, keepdim=True)).reshape(-1, *grid.hw)
                                      for mask, grid in zip(cells, grids, strict=False)])]
    for image, extents in enumerate(zip(known[0], known[-1], strict=True)):
        query, key = (grid._replace(height=rows, width=cols)
                      for grid, (rows, cols) in zip(grids, extents, strict=True))
        queries, keys = (_token_indices(grid, part, prefix, keys_hidden.device)
                         for grid, part in zip(grids, (query, key), strict=True))
        hidden = None
        if hides_prefix:
            hidden = take_tokens(keys_hidden[image:image + 1], 1, keys)
            hidden = hidden & ~hidden.all(1, keepdim=True)
        parts.append(ImagePart((query, key), queries, keys, hidden))
    return parts


def _token_indices(grid: Grid, part: Grid, prefix: int, device: torch.device
                   ) -> Tensor | None:
    """Indices of the tokens of a part of the grid, including prefix tokens; None for all."""
    if part.hw == grid.hw:
        return None
    rows = torch.arange(part.height, device=device)
    cells = rows[:, None] * grid.width + torch.arange(part.width, device=device)
    return torch.cat((torch.arange(prefix, device=device), cells.flatten() + prefix))


def run_by_image(run: Callable[..., object], parts: Sequence[ImagePart], x: Tensor,
                 x_qk: Tensor | None) -> Tensor:
    """What a module returns for the tokens of each image alone, (B, L, C), zero elsewhere.

    Args:
        run: takes tokens (1, L', C), their grid, and ``x_qk``.
        parts: the part of each image.
        x, x_qk: (B, L, C), or None.
    """
    outs = []
    for index, part in enumerate(parts):
        alone, alone_qk = (None if each is None else take_tokens(
            each[index:index + 1], 1, part.queries) for each in (x, x_qk))
        out = run(alone, part.grids[0].hw, x_qk=alone_qk)
        assert isinstance(out, Tensor)  # No weights are asked for, so there is only the output.
        outs.append(put_tokens_back(out, 1, part.queries, x.shape[1]))
    return torch.cat(outs)


def take_tokens(x: Tensor, dim: int, index: Tensor | None) -> Tensor:
    """Take the tokens at these indices; all of them where the index is None."""
    return x if index is None else x.index_select(dim, index)


def put_tokens_back(x: Tensor, dim: int, index: Tensor | None, size: int) -> Tensor:
    """Put tokens back to their places, the reverse of :func:`take_tokens`, with zeros elsewhere."""
    if index is None:
        return x
    shape = (*x.shape[:dim], size, *x.shape[dim + 1:])
    return x.new_zeros(shape).index_copy(dim, index, x)
