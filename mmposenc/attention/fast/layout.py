"""How one attention is cut into chunks: some images, some heads, some queries at a time."""
from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from mmposenc.functional.grids import Grid


class Layout(NamedTuple):
    """The tokens of one attention, and the largest sizes that its chunks may have.

    query: the grid of the queries, or None where no term asks for it. prefix: the tokens in front
    of it. len_q, len_k: all queries and keys. elements: logits of several heads together.
    row_elements: logits of some queries of one head. whole_rows: queries are whole rows of the
    grid. most_queries: of each head.
    """

    query: Grid | None
    prefix: int
    len_q: int
    len_k: int
    elements: int
    row_elements: int
    whole_rows: bool
    most_queries: int | None


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
    def num_queries(self) -> int:
        """Queries of each head in this chunk."""
        return int(self.queries.stop - self.queries.start)

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


def chunk_groups(num_images: int, num_heads: int, layout: Layout
                 ) -> Iterator[tuple[Chunk, list[Chunk]]]:
    """Yield groups of images and heads: a chunk of all queries of the group, which shares its keys,
    and the smaller chunks that it is cut into."""
    rows = query_chunks(layout)
    most = max(chunk.num_queries for chunk in rows) * layout.len_k
    images = max(1, layout.elements // (most * num_heads))
    heads = min(num_heads, max(1, layout.elements // most))
    for image in range(0, num_images, images):
        for head in range(0, num_heads, heads):
            some = slice(image, min(image + images, num_images))
            which = slice(head, min(head + heads, num_heads))
            yield (Chunk(some, which, slice(0, layout.len_q)),
                   [row._replace(images=some, heads=which) for row in rows])


def query_chunks(layout: Layout) -> list[Chunk]:
    """The queries of each chunk of a group; images and heads of the chunks are not set yet."""
    nobody, lines, width, prefix = slice(0, 0), layout.len_q, 1, 0  # lines of one query each
    most = layout.most_queries or lines
    if layout.whole_rows and layout.query is not None:
        (lines, width), prefix = layout.query.hw, layout.prefix
        most = lines
    step = max(1, min(lines, layout.row_elements // (layout.len_k * width), most))
    step = -(-lines // -(-lines // step))
    chunks = []
    for top in range(0, lines, step):
        stop, lead = min(top + step, lines), 0 if top else prefix
        queries = slice(prefix + top * width - lead, prefix + stop * width)
        chunks.append(Chunk(nobody, nobody, queries, lead, top, stop - top))
    return chunks
