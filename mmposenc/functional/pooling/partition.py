"""Which queries and keys of context pooling are worked on together."""
from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ..grids import cells_at_stride
from .kernels import reach

#: Elements of a buffer of weights: 1 MiB stays in a core's cache; a GPU wants large products.
BLOCK_ELEMENTS = {'cpu': 2 ** 18, 'cuda': 2 ** 25}
#: Pairs of tokens up to which an image is one block: grouping its queries costs more than it saves.
WHOLE_PAIRS = 2 ** 20
#: Queries from which an accelerator groups them too (not measured on one).
GROUPED_FROM = 16384
#: Queries of a block where they are grouped; fewer waste the products, more reach further.
GROUP = 192
#: Side of the regions that groups are drawn from, in cells.
REGION = 24


class Options(NamedTuple):
    """What all blocks share."""

    hw_shape: tuple[int, int]
    kernel: str
    causal: bool
    cut: float
    stride: int
    every: bool = False


class Block(NamedTuple):
    """Queries of some images and the rectangle of keys that they reach."""

    images: slice
    queries: Tensor | None  # places of the queries among all; None for all in order
    rows: slice
    cols: slice


def blocks(sigma: Tensor, options: Options) -> Iterator[Block]:
    """Whole images while several fit in a buffer, else groups of near queries of similar size."""
    height, width = options.hw_shape
    images = sigma.shape[0]
    if sigma.shape[1] * height * width <= max(block_elements(sigma), WHOLE_PAIRS):
        # As many images as the factors of their weights leave in the cache.
        step = max(1, block_elements(sigma) // (sigma.shape[1] * (height + width)))
        for first in range(0, images, step):
            yield Block(slice(first, first + step), None, slice(0, height), slice(0, width))
        return
    if sigma.device.type != 'cpu' and sigma.shape[1] <= GROUPED_FROM:
        yield from _consecutive(sigma, options)
        return
    yield from _grouped(sigma.detach(), options)


def _consecutive(sigma: Tensor, options: Options) -> Iterator[Block]:
    """Queries in their order, all keys: as many as fit in a buffer."""
    height, width = options.hw_shape
    step = max(1, block_elements(sigma) // (height * width))
    for image in range(sigma.shape[0]):
        for first in range(0, sigma.shape[1], step):
            some = torch.arange(first, min(first + step, sigma.shape[1]), device=sigma.device)
            yield Block(slice(image, image + 1), some, slice(0, height), slice(0, width))


def block_elements(like: Tensor) -> int:
    """Elements of a buffer of weights on the device of a tensor."""
    return BLOCK_ELEMENTS.get(like.device.type, BLOCK_ELEMENTS['cuda'])


def _grouped(sigma: Tensor, options: Options) -> Iterator[Block]:
    """Queries of a region, those with the smallest neighbourhoods first, and the keys that a group
    of them reaches. How many queries a group has is known from the grid alone, so that an
    accelerator is waited for once, for the corners of all groups."""
    group = GROUP if sigma.device.type == 'cpu' else 8 * GROUP
    lengths = _group_lengths(options, group)
    cells = cells_at_stride(options.hw_shape, options.stride, sigma.device)
    region, (rows, cols) = _regions(cells, options), (cells // options.hw_shape[1],
                                                      cells % options.hw_shape[1])
    members: list[tuple[int, Tensor]] = []
    corners: list[Tensor] = []
    for image, sizes in enumerate(sigma):
        by_size = sizes.argsort()
        order = by_size[region[by_size].argsort(stable=True)]
        for some in order.split(lengths):
            members.append((image, some))
            corners.append(torch.stack((sizes[some].amax().double(), *(
                each[some].amin().double() for each in (rows, cols)), *(
                each[some].amax().double() for each in (rows, cols)))))
    for (image, some), found in zip(members, torch.stack(corners).tolist(), strict=True):
        yield _with_keys(image, some, found, options)


def _regions(cells: Tensor, options: Options) -> Tensor:
    """Number of the region that each cell lies in."""
    height, width = options.hw_shape
    side = REGION * options.stride
    tall = min(side, height)
    wide = max(side, side * side // tall)
    return cells // width // tall * (width // wide + 1) + cells % width // wide


def _group_lengths(options: Options, group: int) -> list[int]:
    """Queries of each group: those of a region in as few parts of one size as there can be."""
    cells = cells_at_stride(options.hw_shape, options.stride)
    found: list[int] = []
    for count in _regions(cells, options).bincount().tolist():
        parts = -(-count // group)
        found += [count // parts + (part < count % parts) for part in range(parts)]
    return found


def _with_keys(image: int, members: Tensor, corners: list[float], options: Options) -> Block:
    """A group and its keys, from its largest sigma, and its first and last rows and columns."""
    height, width = options.hw_shape
    far = min(reach(options.kernel, corners[0], options.cut), height + width)
    top, left, bottom, right = corners[1:]
    return Block(
        slice(image, image + 1), members,
        slice(max(0, int(top - far)), min(height, int(bottom + far) + 1)),
        slice(max(0, int(left - far)),
              min(width, int(right + (0 if options.causal else far)) + 1)))
