"""How one attention is cut into chunks: some images, some heads, some queries at a time."""
from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor

from mmposenc.functional.grids import Grid


class Layout(NamedTuple):
    """How the tokens of one attention are ordered while chunks are computed.

    query, key: grids of the cells, or None where no term asks for them. prefix: tokens in front of
    either grid. len_q, len_k: tokens in all. filled: keys are reordered, with the prefix tokens
    behind the cells, and filled up to whole rows of the key grid, so that every row has the same
    number of keys.
    """

    query: Grid | None
    key: Grid | None
    prefix: int
    len_q: int
    len_k: int
    filled: bool = False

    @property
    def num_keys(self) -> int:
        """The number of keys that are computed with, including those that only fill up the last
        row."""
        return self.len_k + self.fill

    @property
    def fill(self) -> int:
        """The number of keys that only fill up the last row."""
        return -self.prefix % self.key.width if self.filled and self.key is not None else 0

    @property
    def cell_keys(self) -> slice:
        """The slice of the keys that are cells."""
        first = 0 if self.filled else self.prefix
        return slice(first, first + self.len_k - self.prefix)

    @property
    def prefix_keys(self) -> slice:
        """The slice of the keys that are prefix tokens."""
        first = self.len_k - self.prefix if self.filled else 0
        return slice(first, first + self.prefix)

    def arrange(self, x: Tensor, dim: int, value: float = 0.0) -> Tensor:
        """Reorder keys from the caller's order to that of the chunks."""
        if not (self.filled and self.prefix):
            return x
        cells = self.len_k - self.prefix
        x = x.roll(-self.prefix, dim) if cells else x
        dim = dim % x.dim()
        return F.pad(x, (0, 0) * (x.dim() - 1 - dim) + (0, self.fill), value=value)

    def restore(self, x: Tensor) -> Tensor:
        """Reorder (..., keys, channels) back to the caller's order, the adjoint of :meth:`arrange`.
        """
        if not (self.filled and self.prefix):
            return x
        return x[..., :self.len_k, :].roll(self.prefix, -2)


class Chunk(NamedTuple):
    """Some queries of some heads of some images: all heads of several images, or heads of one.

    lead: how many of the queries are prefix tokens. first_row, num_rows: rows of the query grid,
    where chunks consist of whole ones.
    """

    images: slice
    heads: slice
    queries: slice
    lead: int = 0
    first_row: int = 0
    num_rows: int = 0

    @property
    def num_images(self) -> int:
        """Images in this chunk."""
        return int(self.images.stop - self.images.start)

    @property
    def num_heads(self) -> int:
        """Heads of each image in this chunk."""
        return int(self.heads.stop - self.heads.start)

    @property
    def size(self) -> int:
        """Heads of all images in this chunk."""
        return self.num_images * self.num_heads

    def part_of(self, x: Tensor) -> Tensor:
        """The part of x (images or 1, heads or 1, queries or 1, n) that belongs to this chunk."""
        return x[self.images if x.shape[0] > 1 else slice(None),
                 self.heads if x.shape[1] > 1 else slice(None),
                 self.queries if x.shape[2] > 1 else slice(None)]

    def by_image(self, x: Tensor) -> Tensor:
        """View (images * heads, ...) as (images, heads, ...)."""
        return x.view(self.num_images, self.num_heads, *x.shape[1:])


class ChunkLimits(NamedTuple):
    """The largest sizes that chunks may have.

    elements: logits of several heads together. row_elements: logits of some queries of one head.
    whole_rows: queries are whole rows of the grid. most_queries: of each head.
    """

    elements: int
    row_elements: int
    whole_rows: bool = False
    most_queries: int | None = None


def chunk_groups(num_images: int, num_heads: int, layout: Layout, cut: ChunkLimits
                 ) -> Iterator[tuple[Chunk, list[Chunk]]]:
    """Yield groups of images and heads: a chunk of all queries of the group, which shares its keys,
    and the smaller chunks that it is cut into."""
    rows = query_chunks(layout, cut)
    most = max(chunk.queries.stop - chunk.queries.start for chunk in rows) * layout.num_keys
    images = max(1, cut.elements // (most * num_heads))
    heads = min(num_heads, max(1, cut.elements // most))
    for image in range(0, num_images, images):
        for head in range(0, num_heads, heads):
            some = slice(image, min(image + images, num_images))
            which = slice(head, min(head + heads, num_heads))
            yield (Chunk(some, which, slice(0, layout.len_q)),
                   [row._replace(images=some, heads=which) for row in rows])


def query_chunks(layout: Layout, cut: ChunkLimits) -> list[Chunk]:
    """The queries of each chunk of a group; images and heads of the chunks are not set yet."""
    nobody = slice(0, 0)
    if not (cut.whole_rows and layout.query is not None):
        step = max(1, min(layout.len_q, cut.row_elements // layout.num_keys,
                          cut.most_queries or layout.len_q))
        step = -(-layout.len_q // -(-layout.len_q // step))
        return [Chunk(nobody, nobody, slice(first, min(first + step, layout.len_q)))
                for first in range(0, layout.len_q, step)]
    height, width = layout.query.hw
    step = max(1, min(height, cut.row_elements // (layout.num_keys * width)))
    step = -(-height // -(-height // step))
    chunks = []
    for top in range(0, height, step):
        stop, lead = min(top + step, height), 0 if top else layout.prefix
        queries = slice(layout.prefix + top * width - lead, layout.prefix + stop * width)
        chunks.append(Chunk(nobody, nobody, queries, lead, top, stop - top))
    return chunks
