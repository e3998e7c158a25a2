"""Modules noted while a model runs: of attention its arguments, weights and logit terms, and where
its queries lie."""
from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch

from torch import Tensor, nn

from mmposenc.attention import (
    PlainWindowAttention,
    ShiftWindowAttention,
    SpatialReductionAttention,
    WindowAttention,
)
from mmposenc.attention.terms import Term
from mmposenc.encodings.base import RelativeEncoding
from mmposenc.functional.grids import Grid, as_grid, key_grid
from mmposenc.functional.packing import Row
from mmposenc.functional.windows import window_counts

from .maps import Array, on_grid, query_index

#: A map that was cut into windows, and the shift (rows, columns) of these.
Placed = tuple[Grid, tuple[int, int]]


def check_place(at: tuple[float, float]) -> None:
    """Refuse a place that is not inside an image.

    Raises:
        ValueError: if it is not two fractions of height and width.
    """
    if not all(0.0 <= each < 1.0 for each in at):
        raise ValueError(f'at={at} must be two fractions in [0, 1)')


class Layout(NamedTuple):
    """Where the query of a layer lies: grids, its cell, its row of the batch; in windows which one,
    and the map and the shift with which they were cut."""

    grid: Grid
    key: Grid
    cell: tuple[int, int]
    image: int = 0
    window: tuple[int, int] | None = None
    placed: Placed | None = None


def _window_layout(window: Grid, given: dict[str, Any], at: tuple[float, float],
                   placed: Placed | None) -> Layout:
    """The window that holds a place of the map; of windows that no map was cut into, the middle
    one of the image."""
    if placed is None:
        regions = given.get('regions')
        windows = len(given['x']) if regions is None else regions.shape[1]
        cell = int(at[0] * window.height), int(at[1] * window.width)
        return Layout(window, window, cell, windows // 2)
    grid, shift = placed
    down, across = window_counts(grid.hw, window.hw)
    row, col = ((int(share * side) - step) % length
                for share, side, step, length in zip(at, grid.hw, shift,
                                                     (down * window.height, across * window.width),
                                                     strict=True))
    place = row // window.height, col // window.width
    return Layout(window, window, (row % window.height, col % window.width),
                   place[0] * across + place[1], place, placed)


Module = TypeVar('Module', bound=nn.Module)
Numbers = TypeVar('Numbers', Tensor, Array)


class AttentionCall(NamedTuple):
    """One call of an attention on a grid.

    name, module: which. given: its arguments by name. weights: (B or windows, heads, P + L, P + Lk)
    after the softmax. terms: what each term of its encoding added to the logits. placed: the map
    that windows were cut from, where there is one.
    """

    name: str
    module: nn.Module
    given: dict[str, Any]
    weights: Tensor
    terms: list[Tensor]
    placed: Placed | None

    @property
    def num_prefix_tokens(self) -> int:
        """Tokens in front of the grid."""
        return int(getattr(self.module, 'num_prefix_tokens', 0))

    @property
    def map_grid(self) -> Grid:
        """The whole map, which windows are cut from."""
        if self.placed is not None:
            return self.placed[0]
        windows = isinstance(self.module, WindowAttention)
        return as_grid(self.module.window_size if windows else self.given['hw_shape'])

    def layout(self, at: tuple[float, float]) -> Layout:
        """Where the query at a place of the image lies, ``at`` as fractions of height and width."""
        if isinstance(self.module, WindowAttention):
            return _window_layout(as_grid(self.module.window_size), self.given, at, self.placed)
        grid = as_grid(self.given['hw_shape'])
        if isinstance(self.module, PlainWindowAttention):
            return _window_layout(as_grid(self.module.window_size), self.given, at,
                                  (grid, (0, 0)))
        key = grid
        if isinstance(self.module, SpatialReductionAttention):
            key = key_grid(grid, self.module.reduced_grid(grid))
        return Layout(grid, key, (int(at[0] * grid.height), int(at[1] * grid.width)))

    @property
    def grids(self) -> tuple[Grid, Grid]:
        """Those of queries and keys; in windows both are the window."""
        layout = self.layout((0.0, 0.0))
        return layout.grid, layout.key


def total(terms: Sequence[Numbers]) -> Numbers | None:
    """What terms add to the logits together; None without any."""
    return reduce(operator.add, terms) if terms else None


def is_attention(module: nn.Module) -> bool:
    """Whether a module is attention of this project, its DETR's (which torch alone does not have)
    included."""
    return (hasattr(module, 'rel_pos_encoding')
            and 'need_weights' in inspect.signature(module.forward).parameters)


def given_arguments(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
                    ) -> dict[str, Any]:
    """The arguments of a call by name."""
    return inspect.signature(module.forward).bind(*args, **kwargs).arguments


@contextmanager
def watched(model: nn.Module, kind: type[Module],
            note: Callable[[str, Module, dict[str, Any], Any], None]) -> Iterator[None]:
    """Record every module of a class inside ``model`` as it runs.

    Args:
        model: anything that holds such modules.
        kind: their class.
        note: called with a module's name, itself, the arguments of its call by name, and what came
            out of it.
    """
    def watch(name: str, module: Module) -> Any:
        def take(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
            note(name, module, given_arguments(module, args, kwargs), out)
        return module.register_forward_hook(take, with_kwargs=True)

    with ExitStack() as stack:
        for name, module in model.named_modules():
            if isinstance(module, kind):
                stack.callback(watch(name, module).remove)
        yield


@contextmanager
def watch_attention(model: nn.Module, note: Callable[[AttentionCall], None]) -> Iterator[None]:
    """Record every attention on a grid inside ``model`` as it runs.

    What the model computes does not change; attention is explicit meanwhile, which takes (L, Lk)
    numbers.

    Raises:
        ValueError: while the model runs, for layers that leave padded tokens out.
    """
    maps: dict[nn.Module, Placed] = {}
    terms: list[Tensor] = []  # of the attention that runs
    encodings: dict[RelativeEncoding, None] = {}  # several attentions may share one
    with ExitStack() as stack:
        for name, module in model.named_modules():
            if isinstance(module, ShiftWindowAttention):
                _watch_map(module, maps, stack)
            elif is_attention(module):
                _watch(name, module, maps, terms, note, stack)
                if module.rel_pos_encoding is not None:
                    encodings[module.rel_pos_encoding] = None
        for encoding in encodings:
            stack.enter_context(patch.object(
                encoding, 'terms', partial(_recorded_terms, encoding.terms, terms)))
        yield


def _watch_map(module: ShiftWindowAttention, maps: dict[nn.Module, Placed], stack: ExitStack
               ) -> None:
    """Note the map and the shift for the attention in its windows."""
    def remember(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        grid = as_grid(given_arguments(module, args, kwargs)['hw_shape'])
        maps[module.w_msa] = grid, module._shift(grid.hw)

    stack.callback(module.register_forward_pre_hook(remember, with_kwargs=True).remove)


def _watch(name: str, module: nn.Module, maps: dict[nn.Module, Placed], terms: list[Tensor],
           note: Callable[[AttentionCall], None], stack: ExitStack) -> None:
    def ask(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        terms.clear()
        given = given_arguments(module, args, kwargs)
        if isinstance(given.get('hw_shape'), Row):
            raise ValueError(f'{name} leaves padded tokens out, so its weights lie on no grid: '
                             f'give an image without padding, or the encoder skip_padding=False')
        return args, {**kwargs, 'need_weights': _has_grid(module, given)}

    def take(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        given = given_arguments(module, args, kwargs)
        if not _has_grid(module, given):
            return output
        out, weights = output
        note(AttentionCall(name, module, given, weights.detach(), list(terms), maps.get(module)))
        return out

    stack.callback(module.register_forward_pre_hook(ask, with_kwargs=True).remove)
    stack.callback(module.register_forward_hook(take, with_kwargs=True).remove)


def _has_grid(module: nn.Module, given: dict[str, Any]) -> bool:
    """False in a decoder, whose queries are objects."""
    return isinstance(module, WindowAttention) or given.get('hw_shape') is not None


def _recorded_terms(original: Callable[[Grid, Grid], list[Term]], found: list[Tensor],
                    q_grid: Grid, k_grid: Grid) -> list[Term]:
    """The terms of an encoding; what they give the logits is added to ``found``."""
    return [each if each.on_values else _RecordedTerm(each, found)
            for each in original(q_grid, k_grid)]


class _RecordedTerm(Term):
    """A term whose definition is recorded, for every query and key."""

    def __init__(self, term: Term, found: list[Tensor]) -> None:
        self.term, self.found = term, found

    def dense(self, q: Tensor, k: Tensor) -> Tensor:
        """See :class:`Term`."""
        logits = self.term.dense(q, k)
        self.found.append(logits.detach().expand(-1, -1, q.shape[-2], k.shape[-2]))
        return logits


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
    def window_text(self) -> str:
        """Which window, where there are any."""
        return '' if self.window is None else (
            f', window in row {self.window[0]}, column {self.window[1]}')

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
        layout = call.layout(at)
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
