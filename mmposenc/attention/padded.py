"""Attention of padded batches by image, each on the valid part of its grids."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ..functional.grids import Grid
from ..functional.masking import extents_of_several, noted_extents
from ..functional.tracing import is_compiling
from .compute import output_and_weights
from .terms import Problem

if TYPE_CHECKING:
    from ..encodings.base import RelativeEncoding


class ImagePart(NamedTuple):
    """The part of one image in a batch: its grids, the indices of its queries and keys (None for
    all), and a mask of keys (1, keys) that are padding nevertheless."""

    grids: tuple[Grid, Grid]
    queries: Tensor | None
    keys: Tensor | None
    hidden: Tensor | None = None


def attend_by_image(problem: Problem, encoding: RelativeEncoding, parts: Sequence[ImagePart]
                    ) -> tuple[Tensor, Tensor | None]:
    """Attention of each image separately.

    Args:
        problem: the attention of all images.
        encoding: the encoding.
        parts: the part of each image.

    Returns:
        (B, heads, Lq, head_dims), and the weights (B, heads, Lq, Lk) if they are needed. Both are
        zero for queries that are left out.
    """
    qkv = (problem.q, problem.k, problem.v)
    outs, all_weights = [], []
    # Tokens come first, as projections store them, so that only the chosen tokens are copied.
    images = zip(*(x.transpose(1, 2).chunk(len(x)) for x in qkv), strict=True)
    for image, (part, tokens) in enumerate(zip(parts, images, strict=True)):
        q, k, v = (take_tokens(x, 1, index).transpose(1, 2) for x, index in zip(
            tokens, (part.queries, part.keys, part.keys), strict=True))
        query, key = part.grids
        mask, regions = _masks_of_image(problem, image, part.queries, part.keys)
        out, weights = output_and_weights(problem._replace(
            q=q, k=k, v=v, query=query, key=key, key_padding=part.hidden, attn_mask=mask,
            regions=regions, tokens=None if problem.tokens is None else take_tokens(
                problem.tokens[image:image + 1], 1, part.queries)), encoding)
        outs.append(put_tokens_back(out.transpose(1, 2), 1, part.queries, problem.q.shape[2]))
        if weights is not None:
            weights = put_tokens_back(weights, 3, part.keys, problem.k.shape[2])
            all_weights.append(put_tokens_back(weights, 2, part.queries, problem.q.shape[2]))
    return torch.cat(outs).transpose(1, 2), torch.cat(all_weights) if all_weights else None


# Not compiled: each size of an image would become a graph of its own.
@torch.compiler.disable
def attend_on_own_extents(problem: Problem, encoding: RelativeEncoding, key_mask: Tensor
                          ) -> tuple[Tensor, Tensor | None]:
    """:func:`attend_by_image` on the valid part of each image's grids.

    Args:
        problem: the attention of all images, with the grids of the whole batch.
        encoding: an encoding that is not ``cellwise``.
        key_mask: (B, Lk) bool, True = padding.

    Raises:
        ValueError: in an export; for videos; if keys have another grid and there is no mask of the
            queries, or there are regions; if valid cells are not a rectangle at the top left.
    """
    name, grids = type(encoding).__name__, problem.grids
    if is_compiling():
        raise ValueError(f'{name} depends on the size of each image: padded batches are computed '
                         f'image by image, which cannot be exported; leave the mask out')
    if max(grid.frames for grid in grids) > 1:
        raise ValueError(f'{name} depends on the size of each image; key_padding_mask of videos '
                         f'(q_grid={grids[0].shape}) needs an encoding that is cellwise')
    prefix, query_mask = problem.prefix, problem.query_padding
    if not len(key_mask):  # A batch without images has none of its own size.
        return output_and_weights(problem, encoding)
    if query_mask is None and grids[0] != grids[1]:
        raise ValueError(f'query_padding_mask=None, but {name} depends on the size of each image; '
                         f'with keys on another grid a mask of the queries is required')
    if problem.regions is not None and grids[0] != grids[1]:
        raise ValueError(f'regions with k_grid={grids[1].shape} other than q_grid={grids[0].shape}:'
                         f' {name} depends on the size of each image; leave the masks out')
    masks = ((key_mask, grids[1]),) if query_mask is None else (
        (query_mask, grids[0]), (key_mask, grids[1]))
    valid = _extents_in_masks(masks, prefix)
    parts = []
    for image, extents in enumerate(zip(valid[0], valid[-1], strict=True)):
        query, key = (grid._replace(height=rows, width=cols)
                      for grid, (rows, cols) in zip(grids, extents, strict=True))
        queries, keys = (token_indices_of_part(grid, part, prefix, key_mask.device)
                         for grid, part in zip(grids, (query, key), strict=True))
        hidden = None  # Stays None unless a mask of the caller's own hides prefix tokens.
        if prefix and noted_extents(key_mask) is None:
            hidden = take_tokens(key_mask[image:image + 1], 1, keys)
            hidden = hidden & ~hidden.all(1, keepdim=True)
        parts.append(ImagePart((query, key), queries, keys, hidden))
    return attend_by_image(problem, encoding, parts)


def _extents_in_masks(masks: Sequence[tuple[Tensor, Grid]],
                      prefix: int) -> list[list[tuple[int, int]]]:
    """Valid rows and columns of each image in each mask's grid; all of them for an image of only
    padding, whose output the caller discards."""
    known = [noted_extents(mask) for mask, _ in masks]
    if None not in known:
        return known  # type: ignore[return-value]
    cells = [mask[:, prefix:] for mask, _ in masks]
    return extents_of_several([
        (mask & ~mask.all(1, keepdim=True)).reshape(-1, *grid.hw)
        for mask, (_, grid) in zip(cells, masks, strict=True)])


def valid_extents_of_tokens(mask: Tensor, grid: Grid, prefix: int) -> list[tuple[int, int]]:
    """Valid rows and columns of each image in a mask (B, prefix + H * W) of its tokens."""
    return _extents_in_masks(((mask, grid),), prefix)[0]


def token_indices_of_part(grid: Grid, part: Grid, prefix: int,
                          device: torch.device) -> Tensor | None:
    """Indices of the tokens of a part of the grid, including prefix tokens; None for all."""
    if part.hw == grid.hw:
        return None
    rows = torch.arange(part.height, device=device)
    cells = rows[:, None] * grid.width + torch.arange(part.width, device=device)
    return torch.cat((torch.arange(prefix, device=device), cells.flatten() + prefix))


def _masks_of_image(problem: Problem, image: int, queries: Tensor | None, keys: Tensor | None
                    ) -> tuple[Tensor | None, Tensor | None]:
    """The mask and the regions, cut to the tokens of one image."""
    mask, regions = problem.attn_mask, problem.regions
    if mask is not None:
        mask = mask[image:image + 1] if mask.shape[0] > 1 else mask
        for dim, index in ((2, queries), (3, keys)):
            mask = take_tokens(mask, dim, index) if mask.shape[dim] > 1 else mask
    if regions is not None:
        regions = take_tokens(regions[image % len(regions)][None], 1, queries)
    return mask, regions


def take_tokens(x: Tensor, dim: int, index: Tensor | None) -> Tensor:
    """Take the tokens at these indices; all of them where the index is None."""
    return x if index is None else x.index_select(dim, index)


def put_tokens_back(x: Tensor, dim: int, index: Tensor | None, size: int) -> Tensor:
    """Put tokens back to their places, the reverse of :func:`take_tokens`, with zeros elsewhere."""
    if index is None:
        return x
    shape = (*x.shape[:dim], size, *x.shape[dim + 1:])
    return x.new_zeros(shape).index_copy(dim, index, x)
