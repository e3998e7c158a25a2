"""Attention weights and logit terms, noted while a model runs."""
from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from torch import Tensor, nn

from ..attention import (
    PlainWindowAttention,
    ShiftWindowAttention,
    SpatialReductionAttention,
    WindowAttention,
)
from ..encodings.base import RelativeEncoding
from ..functional.attention.terms import Term
from ..functional.grids import Grid, as_grid, key_grid
from ..functional.windows import window_counts
from .maps import Array, on_grid, query_index

Module = TypeVar('Module', bound=nn.Module)


@dataclass
class AttentionRecord:
    """One layer's attention in the first image.

    name: of the module. hw_shape, cell: grid and (row, column) of one query. key_shape,
    key_strides: grid of the keys, and the size of its cells in those of the queries. weights:
    (heads, Hk, Wk) of that query; with prefix tokens they sum to less than 1. terms: what the
    encoding added to its logits, (heads or 1, Hk, Wk), or None. num_prefix_tokens: P. window: (row,
    column) of the window in the map, rolled by the shift; then both grids are the window.
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


@dataclass
class AttentionCall:
    """One layer's attention as it runs.

    name: of the module. given: the arguments of its call by name. weights: (B, heads, P + L, P +
    Lk), windows in place of images where there are windows. placed: the map that windows were cut
    from, and their shift; None without windows that are shifted. terms: what the encoding added to
    the logits, (B or 1, heads or 1, P + L, P + Lk) each.
    """

    name: str
    module: nn.Module
    given: dict[str, Any]
    weights: Tensor
    placed: tuple[Grid, tuple[int, int]] | None = None
    terms: list[Tensor] = field(default_factory=list)

    @property
    def map_grid(self) -> Grid:
        """The whole map, which windows are cut from."""
        if self.placed is not None:
            return self.placed[0]
        windows = isinstance(self.module, WindowAttention)
        return as_grid(self.module.window_size if windows else self.given['hw_shape'])

    @property
    def grids(self) -> tuple[Grid, Grid]:
        """Those of queries and keys; in windows both are the window."""
        layout = _layout(self.module, self.given, (0.0, 0.0), self.placed)
        return layout.grid, layout.key


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
    with watch_attention(model, lambda call: records.append(
            _record(call, at, len(records) == whole))):
        yield records


@contextmanager
def watch_attention(model: nn.Module, note: Callable[[AttentionCall], None]) -> Iterator[None]:
    """Have every attention on a grid that runs inside ``model`` noted.

    Args:
        model: as of :func:`record_attention`.
        note: called with each, in the order in which they run.

    Raises:
        ValueError: while the model runs, for layers that leave padded tokens out.
    """
    maps: dict[nn.Module, tuple[Grid, tuple[int, int]]] = {}
    with ExitStack() as stack:
        for name, module in model.named_modules():
            if isinstance(module, ShiftWindowAttention):
                _watch_map(module, maps, stack)
            elif is_attention(module):
                _watch(name, module, note, maps, stack)
        yield


def is_attention(module: nn.Module) -> bool:
    """Whether a module is attention of this project, its DETR's (which torch alone does not have)
    included."""
    return (hasattr(module, 'rel_pos_encoding')
            and 'need_weights' in inspect.signature(module.forward).parameters)


def given_arguments(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
                    ) -> dict[str, Any]:
    """The arguments of a call by name."""
    return inspect.signature(module.forward).bind(*args, **kwargs).arguments


def check_place(at: tuple[float, float]) -> None:
    """Refuse a place that is not inside an image.

    Raises:
        ValueError: if it is not two fractions of height and width.
    """
    if not all(0.0 <= each < 1.0 for each in at):
        raise ValueError(f'at={at} must be two fractions in [0, 1)')


@contextmanager
def watched(model: nn.Module, kind: type[Module],
            note: Callable[[str, Module, dict[str, Any], Any], None]) -> Iterator[None]:
    """Have every module of a class inside ``model`` noted as it runs.

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


def _watch_map(module: ShiftWindowAttention, maps: dict[nn.Module, tuple[Grid, tuple[int, int]]],
               stack: ExitStack) -> None:
    """Note the map and the shift for the attention in its windows."""
    def note(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        grid = as_grid(given_arguments(module, args, kwargs)['hw_shape'])
        maps[module.w_msa] = grid, module._shift(grid.hw)

    stack.callback(module.register_forward_pre_hook(note, with_kwargs=True).remove)


def _watch(name: str, module: nn.Module, note: Callable[[AttentionCall], None],
           maps: dict[nn.Module, tuple[Grid, tuple[int, int]]], stack: ExitStack) -> None:
    terms: list[Tensor] = []

    def ask(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        terms.clear()
        given = given_arguments(module, args, kwargs)
        if given.get('packing') is not None:
            raise ValueError(f'{name} leaves padded tokens out, so its weights lie on no grid: '
                             f'give an image without padding, or the encoder skip_padding=False')
        return args, {**kwargs, 'need_weights': _has_grid(module, given)}

    def take(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        given = given_arguments(module, args, kwargs)
        if not _has_grid(module, given):
            return output
        out, weights = output
        note(AttentionCall(name, module, given, weights.detach(), maps.get(module), terms))
        return out

    encoding = getattr(module, 'rel_pos_encoding', None)
    if encoding is not None:
        stack.enter_context(_listen(encoding, terms))
    stack.callback(module.register_forward_pre_hook(ask, with_kwargs=True).remove)
    stack.callback(module.register_forward_hook(take, with_kwargs=True).remove)


def _has_grid(module: nn.Module, given: dict[str, Any]) -> bool:
    """False in a decoder, whose queries are objects."""
    return isinstance(module, WindowAttention) or given.get('hw_shape') is not None


@contextmanager
def _listen(encoding: RelativeEncoding, terms: list[Tensor]) -> Iterator[None]:
    """Add what the terms of ``encoding`` give the logits to ``terms``."""
    original = encoding.terms

    def listened(q_grid: Grid, k_grid: Grid) -> list[Term]:
        return [each if each.on_values else _Heard(each, terms)
                for each in original(q_grid, k_grid)]

    # Attentions that share an encoding listen to it one inside the other.
    before = encoding.__dict__.get('terms')
    encoding.__dict__['terms'] = listened
    try:
        yield
    finally:
        if before is None:
            del encoding.__dict__['terms']
        else:
            encoding.__dict__['terms'] = before


class _Heard(Term):
    """A term whose definition is noted."""

    def __init__(self, term: Term, found: list[Tensor]) -> None:
        self.term, self.found = term, found

    def dense(self, q: Tensor, k: Tensor) -> Tensor:
        """See :class:`Term`."""
        logits = self.term.dense(q, k)
        self.found.append(logits.detach())
        return logits


class _Layout(NamedTuple):
    """Where the query of a layer lies: grids, its cell, and its row of the batch."""

    grid: Grid
    key: Grid
    cell: tuple[int, int]
    image: int = 0
    window: tuple[int, int] | None = None


def _layout(module: nn.Module, given: dict[str, Any], at: tuple[float, float],
            placed: tuple[Grid, tuple[int, int]] | None) -> _Layout:
    if isinstance(module, WindowAttention):
        return _window_layout(as_grid(module.window_size), given, at, placed)
    grid = as_grid(given['hw_shape'])
    if isinstance(module, PlainWindowAttention):
        return _window_layout(as_grid(module.window_size), given, at, (grid, (0, 0)))
    key = grid
    if isinstance(module, SpatialReductionAttention):
        key = key_grid(grid, module.reduced_grid(grid))
    return _Layout(grid, key, (int(at[0] * grid.height), int(at[1] * grid.width)))


def _window_layout(window: Grid, given: dict[str, Any], at: tuple[float, float],
                   placed: tuple[Grid, tuple[int, int]] | None) -> _Layout:
    """The window that holds a place of the map; of windows that no map was cut into, the middle
    one of the image."""
    if placed is None:
        regions = given.get('regions')
        windows = len(given['x']) if regions is None else regions.shape[1]
        cell = int(at[0] * window.height), int(at[1] * window.width)
        return _Layout(window, window, cell, windows // 2)
    grid, shift = placed
    down, across = window_counts(grid.hw, window.hw)
    row, col = ((int(share * side) - step) % length
                for share, side, step, length in zip(at, grid.hw, shift,
                                                     (down * window.height, across * window.width),
                                                     strict=True))
    place = row // window.height, col // window.width
    return _Layout(window, window, (row % window.height, col % window.width),
                   place[0] * across + place[1], place)


def _record(call: AttentionCall, at: tuple[float, float], whole: bool) -> AttentionRecord:
    layout = _layout(call.module, call.given, at, call.placed)
    prefix = int(getattr(call.module, 'num_prefix_tokens', 0))
    place = prefix + query_index(layout.grid, layout.cell)
    # (heads or 1, P + L, P + Lk) each; a term may be one for all images.
    found = [each[min(layout.image, len(each) - 1)].detach()
             for each in (call.weights, *call.terms)]
    rows = [on_grid(each[:, place], layout.key, prefix) for each in found]
    record = AttentionRecord(call.name, layout.grid.hw, layout.cell, layout.key.hw, rows[0],
                             _total(rows[1:]), prefix, layout.window,
                             key_strides=(layout.key.stride_h, layout.key.stride_w))
    if whole:
        every = [each.float().cpu().numpy() for each in found]
        record.all_weights, record.all_terms = every[0], _total(every[1:])
    return record


def _total(terms: list[Array]) -> Array | None:
    total: Array | None = None
    for each in terms:
        total = each if total is None else total + each
    return total
