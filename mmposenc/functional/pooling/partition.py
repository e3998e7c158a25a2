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
#: Queries from which an accelerator groups them too: it would wait for their sizes (not measured on
#: one).
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
    group = GROUP if sigma.device.type == 'cpu' else 8 * GROUP
    cells = cells_at_stride(options.hw_shape, options.stride)
    for image in range(images):
        sizes = sigma[image].detach().cpu()
        for members in _groups(cells, sizes, options, group):
            yield _with_keys(image, members, cells[members], sizes, options, sigma.device)


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


def _groups(cells: Tensor, sizes: Tensor, options: Options, group: int) -> Iterator[Tensor]:
    """Queries of a region, those with the smallest neighbourhoods first."""
    height, width = options.hw_shape
    side = REGION * options.stride
    tall = min(side, height)
    wide = max(side, side * side // tall)
    region = cells // width // tall * (width // wide + 1) + cells % width // wide
    by_size = sizes.argsort()
    order = by_size[region[by_size].argsort(stable=True)]
    for members in torch.tensor_split(order, region.bincount().cumsum(0)):
        if not len(members):
            continue
        yield from members.tensor_split(-(-len(members) // group))


def _with_keys(image: int, members: Tensor, cells: Tensor, sizes: Tensor, options: Options,
               device: torch.device) -> Block:
    height, width = options.hw_shape
    far = min(reach(options.kernel, float(sizes[members].max()), options.cut), height + width)
    rows, cols = cells // width, cells % width
    top, left = max(0, int(rows.min() - far)), max(0, int(cols.min() - far))
    bottom = min(height, int(rows.max() + far) + 1)
    right = int(cols.max() + (0 if options.causal else far)) + 1
    return Block(slice(image, image + 1), members.to(device), slice(top, bottom),
                 slice(left, min(width, right)))
