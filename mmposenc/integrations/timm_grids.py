"""The grid of the tokens that a block of timm's ViT gets: timm hands on nothing but the tokens.

A grid is stored for the memory of tokens. What makes other tensors of them (hooks, adapters, casts,
loops of users) loses it; then the number of tokens must fit only one of the grids that can be
meant, or that is an error.
"""
from __future__ import annotations

import threading
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor, nn

from ..functional.tracing import is_compiling, is_transforming

Grid = tuple[int, int]
#: The grid of the tokens in a block of memory. A block that is computed again in the backward pass
#: gets the same memory, maybe as another tensor and in another thread, after the model has seen
#: other images.
_GRIDS: WeakKeyDictionary[torch.UntypedStorage, Grid] = WeakKeyDictionary()


class _Embedded:
    """The grid of an image; it lives as long as the graph of its gradients."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid


#: For a backward pass that gets other memory: images whose graphs are alive, and the grids of those
#: whose patches have none.
_ALIVE: WeakSet[_Embedded] = WeakSet()
_WITHOUT_GRAPH: set[Grid] = set()


class _CallGrids(threading.local):
    """The grids of the images in each thread.

    grid: that of the tokens that are computed. newest: that of an image that was embedded after
    them. embedded, last: by model, those of images whose tokens no block got yet, and of the last
    tokens that a block got in a forward pass.
    """

    grid: Grid | None = None
    newest: Grid | None = None

    def __init__(self) -> None:
        self.embedded: WeakKeyDictionary[nn.Module, tuple[Grid, ...]] = WeakKeyDictionary()
        self.last: WeakKeyDictionary[nn.Module, tuple[Grid, ...]] = WeakKeyDictionary()


CALL = _CallGrids()


def grid_of_call() -> Grid:
    """The grid of the images of the current call.

    Raises:
        ValueError: this thread has not called a model on images, or a compiled block may be meant
            for two.
    """
    grid = CALL.grid
    # Compiled code runs no hooks that take the grid of its own tokens.
    if is_compiling() and CALL.newest is not None and CALL.newest != grid:
        if grid is not None:
            raise _unknown(grid[0] * grid[1], {grid, CALL.newest})
        grid = CALL.newest
    if grid is None:
        raise ValueError('the grid of the tokens is not known yet: call the whole model on '
                         'images, not a single block')
    return grid


def register_grid_hooks(model: Any) -> None:
    """Follow the grid of images from the patch embedding of timm's ViT through all of its blocks.
    """
    model.register_forward_pre_hook(_begin)
    model.patch_embed.register_forward_hook(partial(_note_grid, model))
    # The first of these that is called gets tokens that were made of the embedded patches.
    firsts = [getattr(model, name, None) for name in ('pos_drop', 'norm_pre')]
    for module in (*filter(None, firsts), *model.blocks):
        module.register_forward_pre_hook(partial(
            _take_grid, model, module in firsts or module is model.blocks[0],
            module not in firsts))
        module.register_forward_hook(pass_grid)


def _begin(model: nn.Module, args: tuple[Tensor, ...]) -> None:
    CALL.grid = CALL.newest = None
    if not (is_compiling() or is_transforming()):
        CALL.embedded.pop(model, None)


def _note_grid(model: nn.Module, patch_embed: Any, args: tuple[Tensor, ...], out: Tensor) -> None:
    grid = tuple(patch_embed.dynamic_feat_size(tuple(args[0].shape[-2:])))
    # A model that is compiled or transformed has one call at a time, so nothing is stored.
    if is_compiling() or is_transforming():
        CALL.grid, CALL.newest = grid, None
        return
    CALL.newest = _GRIDS[out.untyped_storage()] = grid
    CALL.embedded[model] = (*CALL.embedded.get(model, ()), grid)
    if out.grad_fn is not None:
        image = out.grad_fn.metadata['mmposenc.grid'] = _Embedded(grid)
        _ALIVE.add(image)
    elif torch.is_grad_enabled():
        _WITHOUT_GRAPH.add(grid)


def _take_grid(model: Any, is_first: bool, needs_grid: bool, module: nn.Module,
               args: tuple[Tensor, ...]) -> None:
    """Set the grid for a module: the one stored for the memory of its tokens, or the only one that
    fits their number: for a first module that of the embedded images, in the backward pass any."""
    if is_compiling() or is_transforming():
        return
    memory, in_backward = args[0].untyped_storage(), torch._C._current_graph_task_id() != -1
    grid, embedded = _GRIDS.get(memory), CALL.embedded.get(model, ())
    if grid is None:
        cells, last = args[0].shape[1] - model.num_prefix_tokens, CALL.last.get(model, ())
        meant = embedded or last if is_first else embedded + last
        if in_backward:
            meant = (*(image.grid for image in tuple(_ALIVE)), *_WITHOUT_GRAPH)
        fits = {each for each in meant if each[0] * each[1] == cells}
        if len(fits) != 1:
            if needs_grid:
                raise _unknown(cells, fits)
            CALL.grid = None
            return
        grid, = fits
    if not in_backward:
        CALL.last[model] = (grid,)
        CALL.embedded[model] = tuple(each for each in embedded if each != grid)
        CALL.newest = None if CALL.newest == grid else CALL.newest
    _GRIDS[memory] = CALL.grid = grid


def pass_grid(module: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> None:
    """A forward hook that stores the grid for the memory of the output."""
    if not (is_compiling() or is_transforming()) and CALL.grid is not None:
        _GRIDS[out.untyped_storage()] = CALL.grid


def _unknown(cells: int, fits: set[Grid]) -> ValueError:
    return ValueError(
        f'the grid of {cells} tokens is not known: '
        + (f'they may be of images of {" or ".join(f"{h} x {w}" for h, w in sorted(fits))} '
           'patches; run all blocks on one image before the next is embedded' if fits
           else 'call the whole model on images, not a single block'))
