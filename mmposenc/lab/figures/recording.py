"""Attention weights and logit terms, noted while a model runs."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import nn

from mmposenc.functional.grids import Grid

from .layouts import Layout, check_place, layout_of
from .maps import Array, on_grid, query_index
from .watching import AttentionCall, total, watch_attention


@dataclass
class AttentionRecord:
    """One layer's attention in the first image.

    name: of the module. hw_shape, cell: grid and (row, column) of one query. key_shape,
    key_strides: grid of the keys, and the size of its cells in those of the queries. weights:
    (heads, Hk, Wk) of that query; with prefix tokens they sum to less than 1. terms: what the
    encoding added to its logits, (heads or 1, Hk, Wk), or None. num_prefix_tokens: P. window: (row,
    column) of the window in the map, rolled by the shift; then both grids are the window, and
    map_shape, shift: the grid that it was cut from, and how far that was rolled.
    all_weights, all_terms: of all queries, (heads or 1, P + L, P + Lk), of the one layer for which
    they were asked.
    """

    name: str
    hw_shape: tuple[int, int]
    cell: tuple[int, int]
    key_shape: tuple[int, int]
    weights: Array
    terms: Array | None = None
    num_prefix_tokens: int = 0
    window: tuple[int, int] | None = None
    all_weights: Array | None = None
    all_terms: Array | None = None
    key_strides: tuple[float, float] = (1.0, 1.0)
    map_shape: tuple[int, int] | None = None
    shift: tuple[int, int] = (0, 0)

    @property
    def key_grid(self) -> Grid:
        """The keys' grid in cells of the queries."""
        return Grid(*self.key_shape, *self.key_strides)

    @property
    def key_cell(self) -> tuple[float, float]:
        """The query's centre in cells of the keys."""
        row, column = ((cell + 0.5) / stride - 0.5
                       for cell, stride in zip(self.cell, self.key_strides, strict=True))
        return row, column


@contextmanager
def record_attention(model: nn.Module, at: tuple[float, float] = (0.5, 0.5), *,
                     whole: int | None = None) -> Iterator[list[AttentionRecord]]:
    """Record every attention on a grid that runs inside ``model``.

    Args:
        model: a backbone, a detector with an encoder of this project, or anything that holds one,
            best in evaluation mode.
        at: where the query lies, as fractions of height and width. In windows, that of the map: the
            record is of the window that holds it.
        whole: the number of a layer, in the order in which they run, of which all queries are kept.

    Yields:
        The list that records are added to, in the order in which the layers run. What the model
        computes does not change; attention is explicit meanwhile, which takes (L, Lk) numbers.

    Raises:
        ValueError: if ``at`` is not inside the image, or, while the model runs, for layers that
            leave padded tokens out.
    """
    check_place(at)
    records: list[AttentionRecord] = []

    def note(call: AttentionCall) -> None:
        layout = layout_of(call.module, call.given, at, call.placed)
        records.append(_record(call, layout, len(records) == whole))

    with watch_attention(model, note):
        yield records


def _record(call: AttentionCall, layout: Layout, whole: bool) -> AttentionRecord:
    prefix = call.num_prefix_tokens
    place = prefix + query_index(layout.grid, layout.cell)
    # (heads or 1, P + L, P + Lk) each; a term may be one for all images.
    found = [each[min(layout.image, len(each) - 1)].detach()
             for each in (call.weights, *call.terms)]
    rows = [on_grid(each[:, place], layout.key, prefix) for each in found]
    record = AttentionRecord(call.name, layout.grid.hw, layout.cell, layout.key.hw, rows[0],
                             total(rows[1:]), prefix, layout.window,
                             key_strides=(layout.key.stride_h, layout.key.stride_w))
    if layout.placed is not None:
        record.map_shape, record.shift = layout.placed[0].hw, layout.placed[1]
    if whole:
        every = [each.float().cpu().numpy() for each in found]
        record.all_weights, record.all_terms = every[0], total(every[1:])
    return record
