"""Records what happens in a model while it runs: attention, and what encodings add."""
from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from mmposenc.attention import (
    PlainWindowAttention,
    ShiftWindowAttention,
    SpatialReductionAttention,
    WindowAttention,
)
from mmposenc.attention.terms import Term
from mmposenc.backbones.encodings_of_model import is_attention
from mmposenc.encodings.base import RelativeEncoding, TokenEncoding
from mmposenc.encodings.placement import PlacedEncodings
from mmposenc.functional.grids import Grid, as_grid, key_grid
from mmposenc.functional.masking import split_prefix
from mmposenc.functional.windows import Windows

#: The arguments of a call, by their names.
Call: TypeAlias = dict[str, Any]


@dataclass
class AttentionCall:
    """One call of an attention on a grid.

    Attributes:
        name, module: which.
        weights: (B or B * windows, heads, P + L, P + Lk), after the softmax.
        added: what its encoding added to the logits, (1 or as weights, 1 or heads, P + L, P + Lk),
            or None.
        grid, key: the grids of queries and keys; in windows both are the window.
        windows: how the map was cut into windows, or None.
    """

    name: str
    module: nn.Module
    weights: Tensor
    added: Tensor | None
    grid: Grid
    key: Grid
    windows: Windows | None = None

    @property
    def num_prefix_tokens(self) -> int:
        """The number P of tokens in front of the grid."""
        return int(getattr(self.module, 'num_prefix_tokens', 0))

    @property
    def added_between_cells(self) -> Tensor | None:
        """What was added to the logits of one image, of one window in its middle, without prefix
        tokens: (1 or heads, L, Lk)."""
        if self.added is None:
            return None
        number = len(self.cell_of_each_query) // 2 if len(self.added) > 1 else 0
        prefix = self.num_prefix_tokens
        return self.added[number, :, prefix:, prefix:].float().cpu()

    @property
    def whole_map_shape(self) -> tuple[int, int]:
        """The size (H, W) of the whole map."""
        return self.grid.hw if self.windows is None else self.windows.hw_shape

    @property
    def cell_of_each_query(self) -> Tensor:
        """The number of each query's cell on the map, row by row, (windows, L); -1 for zeros that
        fill up the last windows."""
        height, width = self.whole_map_shape
        numbers = torch.arange(1, 1 + height * width).view(1, -1, 1)
        return (numbers if self.windows is None else self.windows.cut(numbers))[..., 0] - 1

    def weights_of_token(self, at: tuple[float, float]) -> Tensor:
        """The attention weights of the token at a place in the first image, averaged over the
        heads.

        Args:
            at: the place as fractions of height and width.

        Returns:
            (H, W) of the map with NaN outside of the token's window; (Hk, Wk) for reduced keys.
        """
        height, width = self.whole_map_shape
        number = int(at[0] * height) * width + int(at[1] * width)
        window, token = (self.cell_of_each_query == number).nonzero()[0].tolist()
        prefix = self.num_prefix_tokens
        weights = self.weights[window, :, prefix + token, prefix:].mean(0).float().cpu()
        if self.windows is None:
            return weights.view(self.key.hw)
        cells = self.cell_of_each_query[window]
        on_map = torch.full((height * width,), math.nan)
        on_map[cells[cells >= 0]] = weights[cells >= 0]
        return on_map.view(height, width)


class Hooks(ExitStack):
    """Hooks on modules that are there until the block ends. They get the arguments of each call by
    their names."""

    def before(self, module: nn.Module, look: Callable[[Call], Call | None]) -> None:
        """Call ``look`` before each call of a module; what it returns is added to the arguments."""
        def hook(module: nn.Module, args: Any, kwargs: Call) -> Any:
            more = look(_arguments_by_name(module, args, kwargs))
            return None if more is None else (args, {**kwargs, **more})
        self.callback(module.register_forward_pre_hook(hook, with_kwargs=True).remove)

    def after(self, module: nn.Module, look: Callable[[Call, Any], Any]) -> None:
        """Call ``look`` with the output too; what it returns takes the output's place, unless it is
        None."""
        def hook(module: nn.Module, args: Any, kwargs: Call, out: Any) -> Any:
            return look(_arguments_by_name(module, args, kwargs), out)
        self.callback(module.register_forward_hook(hook, with_kwargs=True).remove)


def _arguments_by_name(module: nn.Module, args: Any, kwargs: Call) -> Call:
    return inspect.signature(module.forward).bind(*args, **kwargs).arguments


@contextmanager
def recording_attention(model: nn.Module, note: Callable[[AttentionCall], None]) -> Iterator[None]:
    """Record every attention on a grid inside a model as it runs.

    What the model computes does not change; attention is explicit meanwhile, which takes (L, Lk)
    numbers.

    Args:
        model: anything that contains attentions of this project.
        note: called with each call, in the order in which they run.

    Raises:
        ValueError: while the model runs, for layers that leave padded tokens out.
    """
    windows: dict[nn.Module, Windows] = {}
    added: list[Tensor] = []  # what is added in the attention that runs at the moment
    # a dict, because several attentions may share one encoding
    encodings: dict[RelativeEncoding, None] = {}
    with Hooks() as hooks:
        for name, module in model.named_modules():
            if isinstance(module, ShiftWindowAttention):
                hooks.before(module, partial(_store_windows, windows, module))
            elif is_attention(module):
                hooks.before(module, partial(_ask_for_weights, name, module, added))
                hooks.after(module, partial(_note_call, name, module, added, windows, note))
                if module.rel_pos_encoding is not None:
                    encodings[module.rel_pos_encoding] = None
        for encoding in encodings:
            recorded = partial(_terms_that_record, encoding.terms, added)
            encoding.terms = recorded  # type: ignore[method-assign]
            hooks.callback(delattr, encoding, 'terms')
        yield


def _store_windows(windows: dict[nn.Module, Windows], module: ShiftWindowAttention, call: Call
                   ) -> None:
    hw = as_grid(call['hw_shape']).hw
    windows[module.w_msa] = Windows(hw, module.window_size, module._shift_of_map(hw))


def _ask_for_weights(name: str, module: nn.Module, added: list[Tensor], call: Call) -> Call:
    added.clear()
    if call.get('packing') is not None:
        raise ValueError(f'{name} leaves padded tokens out, so its weights lie on no grid: '
                         f'give an image without padding, or the encoder skip_padding=False')
    return {'need_weights': _attends_on_grid(module, call)}


def _note_call(name: str, module: Any, added: list[Tensor], windows: dict[nn.Module, Windows],
               note: Callable[[AttentionCall], None], call: Call, output: Any) -> Any:
    if not _attends_on_grid(module, call):
        return None
    out, weights = output
    cut = windows.get(module)
    if isinstance(module, PlainWindowAttention):
        cut = module.windows(as_grid(call['hw_shape']).hw)
    window = getattr(module, 'window_size', None) if cut is None else cut.window
    grid = as_grid(call['hw_shape'] if window is None else window)
    key = grid
    if isinstance(module, SpatialReductionAttention):
        key = key_grid(grid, module.reduced_key_grid(grid))
    note(AttentionCall(name, module, weights.detach(), reduce(add, added) if added else None,
                       grid, key, cut))
    return out


def _attends_on_grid(module: nn.Module, call: Call) -> bool:
    """Whether queries lie on a grid; in a decoder they are objects."""
    return isinstance(module, WindowAttention) or call.get('hw_shape') is not None


def _terms_that_record(original: Callable[[Grid, Grid, Tensor | None], Sequence[Term]],
                       added: list[Tensor], q_grid: Grid, k_grid: Grid, tokens: Tensor | None
                       ) -> list[Term]:
    """The terms of an encoding; what they add to the logits is recorded."""
    return [each if each.on_values else _RecordingTerm(each, added)
            for each in original(q_grid, k_grid, tokens)]


class _RecordingTerm(Term):
    """A term that records its numbers for every query and key."""

    def __init__(self, term: Term, added: list[Tensor]) -> None:
        self.term, self.added = term, added

    def reference(self, q: Tensor, k: Tensor) -> Tensor:
        """The numbers of the term itself, which are recorded."""
        logits = self.term.reference(q, k)
        self.added.append(logits.detach().expand(-1, -1, q.shape[-2], k.shape[-2]))
        return logits


class TokenAddition(NamedTuple):
    """What one token encoding added to the tokens (H * W, C) of the first image."""

    name: str
    module: nn.Module
    hw_shape: tuple[int, int]
    added: Tensor


@dataclass
class InspectedModel:
    """A model to inspect, and how it is run.

    Attributes:
        model: a backbone, or a whole detector if it has an encoder of this project.
        run: runs it once on images (B, C, H, W).
    """

    model: nn.Module
    run: Callable[[Tensor], object]

    @torch.no_grad()
    def calls(self, images: Tensor) -> list[AttentionCall]:
        """The calls of attention on a grid in one pass over images (B, C, H, W)."""
        recorded: list[AttentionCall] = []
        with recording_attention(self.model, recorded.append):
            self.run(images)
        return recorded

    @torch.no_grad()
    def additions(self, images: Tensor) -> list[TokenAddition]:
        """What token encodings add in one pass over images (B, C, H, W), in the order in which they
        run. Encodings that change the grid add nothing and are left out."""
        additions: list[TokenAddition] = []

        def record(name: str, module: nn.Module, call: Call, out: Tensor) -> None:
            before, after = (split_prefix(x[:1], call.get('num_prefix_tokens', 0))[1]
                             for x in (call['x'], out))
            if before.shape == after.shape:
                hw_shape = as_grid(call['hw_shape']).hw
                additions.append(TokenAddition(name, module, hw_shape,
                                               (after - before)[0].float().cpu()))

        with Hooks() as hooks:
            for name, module in self.model.named_modules():
                if isinstance(module, TokenEncoding):
                    hooks.after(module, partial(record, name, module))
            self.run(images)
        return additions


def is_own_detr_encoder(module: nn.Module) -> bool:
    """Whether a module is a DETR encoder of this project. This is decided by its attributes,
    because an import of its class would import OpenMMLab."""
    levels = getattr(module, 'pos_encodings', None)
    return isinstance(levels, nn.ModuleList) and isinstance(levels[0], PlacedEncodings)
