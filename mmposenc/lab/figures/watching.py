"""Modules noted while a model runs: what they are called with, and what comes out of them."""
from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, TypeVar

from torch import Tensor, nn

from mmposenc.attention import ShiftWindowAttention, WindowAttention
from mmposenc.attention.terms import Term
from mmposenc.encodings.base import RelativeEncoding
from mmposenc.functional.grids import Grid, as_grid

from .layouts import Placed, layout_of
from .maps import Array

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

    @property
    def grids(self) -> tuple[Grid, Grid]:
        """Those of queries and keys; in windows both are the window."""
        layout = layout_of(self.module, self.given, (0.0, 0.0), self.placed)
        return layout.grid, layout.key


def total(terms: Sequence[Numbers]) -> Numbers | None:
    """What terms add to the logits together; None without any."""
    found: Numbers | None = None
    for each in terms:
        found = each if found is None else found + each
    return found


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


@contextmanager
def watch_attention(model: nn.Module, note: Callable[[AttentionCall], None]) -> Iterator[None]:
    """Have every attention on a grid inside ``model`` noted as it runs.

    What the model computes does not change; attention is explicit meanwhile, which takes (L, Lk)
    numbers.

    Raises:
        ValueError: while the model runs, for layers that leave padded tokens out.
    """
    maps: dict[nn.Module, Placed] = {}
    with ExitStack() as stack:
        for name, module in model.named_modules():
            if isinstance(module, ShiftWindowAttention):
                _watch_map(module, maps, stack)
            elif is_attention(module):
                _watch(name, module, maps, note, stack)
        yield


def _watch_map(module: ShiftWindowAttention, maps: dict[nn.Module, Placed], stack: ExitStack
               ) -> None:
    """Note the map and the shift for the attention in its windows."""
    def remember(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        grid = as_grid(given_arguments(module, args, kwargs)['hw_shape'])
        maps[module.w_msa] = grid, module._shift(grid.hw)

    stack.callback(module.register_forward_pre_hook(remember, with_kwargs=True).remove)


def _watch(name: str, module: nn.Module, maps: dict[nn.Module, Placed],
           note: Callable[[AttentionCall], None], stack: ExitStack) -> None:
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
        note(AttentionCall(name, module, given, weights.detach(), list(terms), maps.get(module)))
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
        # A term that is the same for all queries, or all keys, may be one row or column.
        every = logits.detach().expand(-1, -1, q.shape[-2], k.shape[-2])
        self.found.append(every)
        return logits
