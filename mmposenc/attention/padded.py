"""Attention of padded batches by image, each on the valid part of its grids."""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..functional.extents import MaskLike, parts_of_images, put_tokens_back, take_tokens
from ..functional.tracing import is_compiling, uncompiled
from .compute import output_and_weights
from .terms import Problem

if TYPE_CHECKING:
    from ..encodings.base import RelativeEncoding


# Not compiled: each size of an image would become a graph of its own.
@uncompiled
def attend_by_image(problem: Problem, encoding: RelativeEncoding, key_mask: MaskLike,
                    implementation: str, need_weights: bool) -> tuple[Tensor, Tensor | None]:
    """Attention of each image separately, on the valid part of its grids.

    Args:
        problem: the attention of all images, with the grids of the whole batch.
        encoding: an encoding that is not ``cellwise``.
        key_mask: (B, Lk) bool, True = padding.
        implementation, need_weights: as in :func:`.compute.output_and_weights`.

    Returns:
        (B, heads, Lq, head_dims), and the weights (B, heads, Lq, Lk) if they are needed. Both are
        zero for queries that are left out.

    Raises:
        ValueError: in an export; for videos; if keys have another grid and there is no mask of the
            queries, or there are regions; if valid cells are not a rectangle at the top left.
    """
    _check_grids(problem, type(encoding).__name__)
    masks = [mask for mask in (problem.query_padding, key_mask) if mask is not None]
    parts = parts_of_images(problem.grids, masks, problem.prefix)
    if not parts:  # A batch without images has none of its own size.
        return output_and_weights(problem, encoding, implementation, need_weights)
    outs, all_weights = [], []
    # Tokens come first, as projections store them, so that only the chosen tokens are copied.
    images = zip(*(x.transpose(1, 2).chunk(len(x)) for x in (problem.q, problem.k, problem.v)),
                 strict=True)
    for image, (part, tokens) in enumerate(zip(parts, images, strict=True)):
        q, k, v = (take_tokens(x, 1, index).transpose(1, 2) for x, index in zip(
            tokens, (part.queries, part.keys, part.keys), strict=True))
        query, key = part.grids
        mask, regions = _masks_of_image(problem, image, part.queries, part.keys)
        alone = problem._replace(
            q=q, k=k, v=v, query=query, key=key, key_padding=part.hidden, attn_mask=mask,
            regions=regions, tokens=None if problem.tokens is None else take_tokens(
                problem.tokens[image:image + 1], 1, part.queries))
        out, weights = output_and_weights(alone, encoding, implementation, need_weights)
        outs.append(put_tokens_back(out.transpose(1, 2), 1, part.queries, problem.q.shape[2]))
        if weights is not None:
            weights = put_tokens_back(weights, 3, part.keys, problem.k.shape[2])
            all_weights.append(put_tokens_back(weights, 2, part.queries, problem.q.shape[2]))
    return torch.cat(outs).transpose(1, 2), torch.cat(all_weights) if all_weights else None


def _check_grids(problem: Problem, name: str) -> None:
    """Raise ValueError if an encoding of this name cannot be computed image by image."""
    query, key = problem.grids
    if is_compiling():
        raise ValueError(f'{name} depends on the size of each image: padded batches are computed '
                         f'image by image, which cannot be exported; leave the mask out')
    if max(query.frames, key.frames) > 1:
        raise ValueError(f'{name} depends on the size of each image; key_padding_mask of videos '
                         f'(q_grid={query.shape}) needs an encoding that is cellwise')
    if problem.query_padding is None and query != key:
        raise ValueError(f'query_padding_mask=None, but {name} depends on the size of each image; '
                         f'with keys on another grid a mask of the queries is required')
    if problem.regions is not None and query != key:
        raise ValueError(f'regions with k_grid={key.shape} other than q_grid={query.shape}:'
                         f' {name} depends on the size of each image; leave the masks out')


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
