"""Records what happens in a model while it runs: attention, what encodings add, and the maps after
blocks."""
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
from torch.utils._pytree import tree_leaves

from mmposenc.attention import (
    PlainWindowAttention,
    ShiftWindowAttention,
    SpatialReductionAttention,
    WindowAttention,
)
from mmposenc.attention.terms import Term
from mmposenc.backbones.structure import is_attention
from mmposenc.encodings.base import RelativeEncoding, TokenEncoding
from mmposenc.encodings.placement import PlacedEncodings
from mmposenc.functional.grids import Grid, as_grid, key_grid
from mmposenc.functional.masking import split_prefix, tokens_to_map
from mmposenc.functional.packing import Packing
from mmposenc.functional.windows import Windows

#: The positional arguments of a call, as a hook gets them.
Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]


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

    def query_and_key_places(self) -> tuple[Tensor, Tensor]:
        """Row and column of each query (windows, L, 2) and of each key (windows, Lk, 2), in cells
        of the map."""
        width = self.whole_map_shape[1]
        cells = self.cell_of_each_query
        queries = torch.stack((cells // width, cells % width), -1).float()
        if self.windows is not None or self.key == self.grid:
            return queries, queries
        rows, cols = (((torch.arange(side) + 0.5) * stride - 0.5) for side, stride in
                      ((self.key.height, self.key.stride_h), (self.key.width, self.key.stride_w)))
        return queries, torch.stack(torch.meshgrid(rows, cols, indexing='ij'), -1).view(1, -1, 2)

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
    with ExitStack() as stack:
        for name, module in model.named_modules():
            if isinstance(module, ShiftWindowAttention):
                stack.callback(module.register_forward_pre_hook(
                    partial(_store_windows, windows), with_kwargs=True).remove)
            elif is_attention(module):
                stack.callback(module.register_forward_pre_hook(
                    partial(_with_need_weights, name, added), with_kwargs=True).remove)
                stack.callback(module.register_forward_hook(
                    partial(_note_call_and_restore_output, name, added, windows, note),
                    with_kwargs=True).remove)
                if module.rel_pos_encoding is not None:
                    encodings[module.rel_pos_encoding] = None
        for encoding in encodings:
            recorded = partial(_terms_that_record, encoding.terms_of_tokens, added)
            encoding.terms_of_tokens = recorded  # type: ignore[method-assign]
            stack.callback(delattr, encoding, 'terms_of_tokens')
        yield


def arguments_by_name(module: nn.Module, args: Args, kwargs: Kwargs) -> Kwargs:
    """The arguments of a call, by their names."""
    return inspect.signature(module.forward).bind(*args, **kwargs).arguments


def _store_windows(windows: dict[nn.Module, Windows], module: Any, args: Args,
                   kwargs: Kwargs) -> None:
    grid = as_grid(arguments_by_name(module, args, kwargs)['hw_shape'])
    windows[module.w_msa] = Windows(grid.hw, module.window_size, module._shift_of_map(grid.hw))


def _with_need_weights(name: str, added: list[Tensor], module: nn.Module, args: Args,
                       kwargs: Kwargs) -> tuple[Any, Any]:
    added.clear()
    call = arguments_by_name(module, args, kwargs)
    if isinstance(call.get('hw_shape'), Packing):
        raise ValueError(f'{name} leaves padded tokens out, so its weights lie on no grid: '
                         f'give an image without padding, or the encoder skip_padding=False')
    return args, {**kwargs, 'need_weights': _attends_on_grid(module, call)}


def _note_call_and_restore_output(name: str, added: list[Tensor], windows: dict[nn.Module, Windows],
                                  note: Callable[[AttentionCall], None], module: Any, args: Args,
                                  kwargs: Kwargs, output: Any) -> Any:
    call = arguments_by_name(module, args, kwargs)
    if not _attends_on_grid(module, call):
        return output
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


def _attends_on_grid(module: nn.Module, call: Kwargs) -> bool:
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

    def dense(self, q: Tensor, k: Tensor) -> Tensor:
        """The numbers of the term itself, which are recorded."""
        logits = self.term.dense(q, k)
        self.added.append(logits.detach().expand(-1, -1, q.shape[-2], k.shape[-2]))
        return logits


class TokenAddition(NamedTuple):
    """What one token encoding added to the tokens (H * W, C) of the first image."""

    name: str
    module: nn.Module
    hw_shape: tuple[int, int]
    added: Tensor


@contextmanager
def recording_additions(model: nn.Module) -> Iterator[list[TokenAddition]]:
    """A context that records what every token encoding inside a model adds. Encodings that change
    the grid add nothing and are left out.

    Yields:
        The list that additions are appended to, in the order in which the encodings run.
    """
    additions: list[TokenAddition] = []

    def append_addition(name: str, module: nn.Module, args: Args, kwargs: Kwargs,
                        out: Tensor) -> None:
        call = arguments_by_name(module, args, kwargs)
        before, after = (split_prefix(x[:1].detach(), call.get('num_prefix_tokens', 0))[1]
                         for x in (call['x'], out))
        if before.shape == after.shape:
            hw_shape = as_grid(call['hw_shape']).hw
            additions.append(TokenAddition(name, module, hw_shape,
                                           (after - before)[0].float().cpu()))

    with ExitStack() as stack:
        for name, module in model.named_modules():
            if isinstance(module, TokenEncoding):
                stack.callback(module.register_forward_hook(
                    partial(append_addition, name), with_kwargs=True).remove)
        yield additions


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
    def maps(self, images: Tensor) -> dict[str, Tensor]:
        """The maps of tokens (B, C, h, w) after each block, by name, in the order in which blocks
        run; of a backbone of another library those that it returns.

        Raises:
            ValueError: the model has no blocks of this project and returns no maps.
        """
        by_name: dict[str, Tensor] = {}
        with ExitStack() as stack:
            _record_maps_until_closed(self.model, (images.shape[-2], images.shape[-1]), by_name,
                                      stack)
            self.run(images)
        if not by_name:
            raise ValueError(f'model={type(self.model).__name__} has no blocks of this project and '
                             f'no backbone that returns maps (B, C, H, W)')
        # Frozen stages may return half precision.
        return {name: values.float() for name, values in by_name.items()}

    @torch.no_grad()
    def calls(self, images: Tensor) -> list[AttentionCall]:
        """The calls of attention on a grid in one pass over images (B, C, H, W)."""
        recorded: list[AttentionCall] = []
        with recording_attention(self.model, recorded.append):
            self.run(images)
        return recorded

    @torch.no_grad()
    def additions(self, images: Tensor) -> list[TokenAddition]:
        """What token encodings add in one pass over images (B, C, H, W)."""
        with recording_additions(self.model) as recorded:
            self.run(images)
        return recorded


def is_own_detr_encoder(module: nn.Module) -> bool:
    """Whether a module is a DETR encoder of this project. This is decided by its attributes,
    because an import of its class would import OpenMMLab."""
    levels = getattr(module, 'pos_encodings', None)
    return isinstance(levels, nn.ModuleList) and isinstance(levels[0], PlacedEncodings)


def _record_maps_until_closed(model: nn.Module, hw_shape: tuple[int, int],
                              maps_by_name: dict[str, Tensor], stack: ExitStack) -> None:
    in_encoders = {placed for module in model.modules() if is_own_detr_encoder(module)
                   for placed in module.modules()}

    def take_placed(name: str, module: nn.Module, args: Args, kwargs: Kwargs, out: Any) -> None:
        call = arguments_by_name(module, args, kwargs)
        tokens, grid, _ = out
        stage, position = name.rpartition('pos_encodings')[0], call['position']
        cells = split_prefix(tokens.detach(), call.get('num_prefix_tokens', 0))[1]
        label = f'{stage}blocks.{position}' if position >= 0 else f'{stage}input'.replace('.', ' ')
        maps_by_name[label] = tokens_to_map(cells.contiguous(), grid)

    def take_timm(name: str, module: nn.Module, args: Args, out: Tensor) -> None:
        maps_by_name[name] = backbone.block_map_and_prefix(out.detach(), hw_shape)[0]

    def take_outputs(module: nn.Module, args: Args, out: Any) -> None:
        maps = [each for each in tree_leaves(out) if isinstance(each, Tensor) and each.dim() == 4]
        maps_by_name.update((f'map {index}', each.detach()) for index, each in enumerate(maps))

    backbone: Any = getattr(model, 'backbone', model)
    placed = {name: module for name, module in model.named_modules()
              if isinstance(module, PlacedEncodings) and module not in in_encoders}
    # Models of timm may have no encodings of this project.
    if hasattr(backbone, 'block_map_and_prefix'):
        for name, block in backbone.named_blocks():
            stack.callback(block.register_forward_hook(partial(take_timm, name)).remove)
    elif placed:
        for name, module in placed.items():
            stack.callback(module.register_forward_hook(
                partial(take_placed, name), with_kwargs=True).remove)
    else:
        stack.callback(backbone.register_forward_hook(take_outputs).remove)
    for name, module in model.named_modules():
        if is_own_detr_encoder(module):
            stack.callback(module.register_forward_hook(
                partial(_store_memory_maps, name, maps_by_name), with_kwargs=True).remove)


def _store_memory_maps(name: str, maps: dict[str, Tensor], module: nn.Module, args: Args,
                       kwargs: Kwargs, out: Any) -> None:
    """The memory of a DETR's encoder as maps, the finest level last."""
    call = arguments_by_name(module, args, kwargs)
    grids: Any = call.get('hw_shapes')
    grids = call.get('spatial_shapes') if grids is None else grids
    grids = grids.tolist() if isinstance(grids, Tensor) else grids
    grids = [grids] if isinstance(grids[0], int) else grids
    memory = (out[0] if isinstance(out, tuple) else out).detach()
    levels = memory.split([height * width for height, width in grids], 1)
    for level in reversed(range(len(grids))):
        label = f'{name} level {level}' if len(grids) > 1 else name
        maps[label] = tokens_to_map(levels[level].contiguous(), tuple(grids[level]))
