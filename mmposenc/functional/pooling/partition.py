"""Decides which queries and keys of context pooling are computed together."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .kernels import reach

#: The number of elements in a buffer of weights: 1 MiB stays in a core's cache; a GPU wants large
#: products.
BLOCK_ELEMENTS = {'cpu': 2 ** 18, 'cuda': 2 ** 25}
#: Up to this number of pairs of tokens an image is one block, because grouping its queries would
#: cost more than it saves.
WHOLE_PAIRS = 2 ** 20
#: The number of queries in a block where they are grouped. Products of fewer are inefficient, and
#: more reach more keys.
GROUP = 192
#: The side, in cells, of the regions from which groups are drawn.
REGION = 24


def cells_at_stride(hw_shape: tuple[int, int], stride: int, device: torch.device | None = None
                    ) -> Tensor:
    """Numbers of the cells in every ``stride``-th row and column, from the first, row by row."""
    rows = torch.arange(0, hw_shape[0], stride, device=device)
    cols = torch.arange(0, hw_shape[1], stride, device=device)
    return (rows[:, None] * hw_shape[1] + cols).flatten()


class Options(NamedTuple):
    """The options that all blocks share."""

    hw_shape: tuple[int, int]
    kernel: str
    causal: bool
    cut: float
    stride: int
    every: bool


class Block(NamedTuple):
    """Queries of some images, and the rectangle of keys that they reach."""

    images: slice
    queries: Tensor | None  # the numbers of the queries among all; None for all in their order
    rows: slice
    cols: slice


class Group(NamedTuple):
    """Queries of one image that lie near each other and have similar sizes."""

    image: int
    members: Tensor  # the numbers of the queries among all
    corners: Sequence[float] | Tensor  # largest sigma, first row and column, last row and column


def blocks_of_batch(sigma: Tensor, options: Options, groups: Sequence[Group]) -> Iterator[Block]:
    """The blocks of a batch: whole images while several fit in a buffer, otherwise groups of near
    queries of similar size.

    Args:
        sigma: (B, Lq).
        options: what all blocks share.
        groups: what :func:`find_groups` found, its corners read from the device.
    """
    height, width = options.hw_shape
    images = sigma.shape[0]
    if _is_one_block(sigma, options.hw_shape):
        # As many images as leave the factors of their weights in the cache.
        step = max(1, block_elements(sigma) // (sigma.shape[1] * (height + width)))
        for first in range(0, images, step):
            yield Block(slice(first, first + step), None, slice(0, height), slice(0, width))
        return
    for each in groups:
        yield _block_of_group(each, options)


def _is_one_block(sigma: Tensor, hw_shape: tuple[int, int]) -> bool:
    """Whether an image is one block. Only sizes are used, so nothing is read from the device."""
    return sigma.shape[1] * hw_shape[0] * hw_shape[1] <= max(block_elements(sigma), WHOLE_PAIRS)


def block_elements(like: Tensor) -> int:
    """The number of elements of a buffer of weights on the device of a tensor."""
    return BLOCK_ELEMENTS.get(like.device.type, BLOCK_ELEMENTS['cuda'])


def find_groups(sigma: Tensor, hw_shape: tuple[int, int], stride: int) -> list[Group]:
    """Group the queries of each region, beginning with the smallest neighbourhoods; an empty list
    where queries are not grouped."""
    if _is_one_block(sigma, hw_shape):
        return []
    lengths = _group_lengths(hw_shape, stride, GROUP if sigma.device.type == 'cpu' else 8 * GROUP)
    cells = cells_at_stride(hw_shape, stride, sigma.device)
    region = _region_numbers(cells, hw_shape, stride)
    rows, cols = cells // hw_shape[1], cells % hw_shape[1]
    groups = []
    for image, sizes in enumerate(sigma.detach()):
        by_size = sizes.argsort()
        order = by_size[region[by_size].argsort(stable=True)]
        for some in order.split(lengths):
            groups.append(Group(image, some, torch.stack((sizes[some].amax().double(), *(
                each[some].amin().double() for each in (rows, cols)), *(
                each[some].amax().double() for each in (rows, cols))))))
    return groups


def _region_numbers(cells: Tensor, hw_shape: tuple[int, int], stride: int) -> Tensor:
    """The number of the region in which each cell lies."""
    height, width = hw_shape
    side = REGION * stride
    tall = min(side, height)
    wide = max(side, side * side // tall)
    return cells // width // tall * (width // wide + 1) + cells % width // wide


def _group_lengths(hw_shape: tuple[int, int], stride: int, group: int) -> list[int]:
    """The number of queries in each group: those of a region are divided into as few groups of
    equal size as possible."""
    cells = cells_at_stride(hw_shape, stride)
    lengths: list[int] = []
    for count in _region_numbers(cells, hw_shape, stride).bincount().tolist():
        parts = -(-count // group)
        lengths += [count // parts + (part < count % parts) for part in range(parts)]
    return lengths


def _block_of_group(group: Group, options: Options) -> Block:
    """A group with the rectangle of keys that it reaches."""
    height, width = options.hw_shape
    size, top, left, bottom, right = map(float, group.corners)
    far = min(reach(options.kernel, size, options.cut), height + width)
    return Block(
        slice(group.image, group.image + 1), group.members,
        slice(max(0, int(top - far)), min(height, int(bottom + far) + 1)),
        slice(max(0, int(left - far)),
              min(width, int(right + (0 if options.causal else far)) + 1)))
