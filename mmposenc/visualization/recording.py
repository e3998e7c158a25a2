"""Attention weights and logit terms of a model while it runs, for one query a layer."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..attention import MultiheadAttention, SpatialReductionAttention, WindowAttention
from ..encodings.base import RelativeEncoding
from ..functional.attention.terms import Term
from ..functional.grids import Grid, as_grid, key_grid
from .maps import Array, on_grid, query_index


@dataclass
class AttentionRecord:
    """One layer's attention of one query of the first image.

    name: of the module. hw_shape, cell: grid and (row, column) of the query. key_shape: grid of the
    keys. weights: (heads, Hk, Wk); with prefix tokens they sum to less than 1. terms: what the
    encoding added to the logits, (heads or 1, Hk, Wk), or None. In windows the grid is a window,
    the middle one of the image.
    """

    name: str
    hw_shape: tuple[int, int]
    cell: tuple[int, int]
    key_shape: tuple[int, int]
    weights: Array
    terms: Array | None = None


@contextmanager
def record_attention(model: nn.Module, at: tuple[float, float] = (0.5, 0.5)
                     ) -> Iterator[list[AttentionRecord]]:
    """Record every attention of this project that runs inside ``model``.

    Args:
        model: a backbone or anything that holds one, best in evaluation mode.
        at: where the query lies, as fractions of height and width.

    Yields:
        The list that records are added to, in the order in which the layers run. What the model
        computes does not change; attention is explicit meanwhile, which takes (L, Lk) numbers.

    Raises:
        ValueError: if ``at`` is not inside the image.
    """
    if not all(0.0 <= each < 1.0 for each in at):
        raise ValueError(f'at={at} must be two fractions in [0, 1)')
    records: list[AttentionRecord] = []
    with ExitStack() as stack:
        for name, module in model.named_modules():
            if isinstance(module, (MultiheadAttention, SpatialReductionAttention, WindowAttention)):
                _watch(name, module, at, records, stack)
        yield records


def _watch(name: str, module: nn.Module, at: tuple[float, float], records: list[AttentionRecord],
           stack: ExitStack) -> None:
    terms: list[Tensor] = []

    def ask(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        terms.clear()
        return args, {**kwargs, 'need_weights': True}

    def take(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
        out, weights = output
        records.append(_record(name, module, at, args, kwargs, weights, terms))
        return out

    encoding = getattr(module, 'rel_pos_encoding', None)
    if encoding is not None:
        stack.enter_context(_listen(encoding, terms))
    stack.callback(module.register_forward_pre_hook(ask, with_kwargs=True).remove)
    stack.callback(module.register_forward_hook(take, with_kwargs=True).remove)


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
        del encoding.__dict__['terms']
        if before is not None:
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


def _record(name: str, module: nn.Module, at: tuple[float, float], args: tuple[Any, ...],
            kwargs: dict[str, Any], weights: Tensor, terms: list[Tensor]) -> AttentionRecord:
    prefix, image = int(getattr(module, 'num_prefix_tokens', 0)), 0
    if isinstance(module, WindowAttention):
        grid = as_grid(module.window_size)
        regions = args[1] if len(args) > 1 else kwargs.get('regions')
        windows = len(weights) if regions is None else regions.shape[1]
        image = windows // 2
    else:
        grid = as_grid(args[1] if len(args) > 1 else kwargs['hw_shape'])
    key: Grid = grid
    if isinstance(module, SpatialReductionAttention):
        key = key_grid(grid, module.reduced_grid(grid))
    cell = int(at[0] * grid.height), int(at[1] * grid.width)
    place = prefix + query_index(grid, cell)
    found = [on_grid(each[min(image, len(each) - 1), :, place], key, prefix)
             for each in (weights, *terms)]
    return AttentionRecord(name, grid.hw, cell, key.hw, found[0], sum(found[1:]) if terms else None)
